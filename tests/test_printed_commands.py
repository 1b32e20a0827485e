"""Commands that README, guide, start pages, studies and ``--help`` print: the shell reads them, what
they name is there, and they run as they stand in the folder of a reader.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.main import get_command

import graphattn as ga
from graphattn.cli.app import app

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
COMMANDS = get_command(app).commands
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(EXAMPLES / "guide").glob("*.md"),
    *(EXAMPLES / "site" / "pages").glob("*.md"),
    EXAMPLES / "studies" / "README.md",
    EXAMPLES / "benchmarks" / "acceptance.md",
]
PROGRAMS = "graphattn|python|make|cd|torchrun|git|pip"
#: Why a line does not run here.
ELSEWHERE = {
    r"pip install": "fetches packages",
    r": make ": "runs the tests, or what another of them runs",
    r"--device cuda|--nnodes|per_node 8": "needs GPUs or several machines",
    r"figures.py|acceptance.py|scans.py": "CPU hours",
    r"study examples/studies/(?!lra_audit).* --out examples": "CPU hours; theory is on another page",
    r"(README|command_line).md: .*studies/recall|(line|cluster).md: graphattn doctor": (
        "runs on another page"
    ),
    r"--task simulate|graphattn rollout": "runs in tests/training/test_simulate.py",
    r"studies/neighbours": "follows a recipe of test_recipes",
}
#: What ends a line sooner than the reader's.
SMALLER = {
    r" train (?!.*--epochs)": " --epochs 1",
    r" bench ": " --repeats 1 --limit 0.1 --peers SDPA",
    r"--quick": " --seeds 2",
    r"generated_shapes.py": " --each 5",
}
#: A reader's own study.
MINE = """
import torch
import graphattn as ga
from graphattn.study import Budget, Comparison, Data, Study


def study():
    tokens = torch.randint(5, (60, 9), generator=torch.Generator().manual_seed(0))
    arms = {"window": ga.graphs.sliding_window(..., 3, causal=False), "full": ga.graphs.full(...)}
    data = Data(tokens, tokens[:, 8] % 2, test=20)
    budgets = [Budget(steps=2)]
    return Study("mine", [Comparison("mine", arms, data, readout="mean", budgets=budgets)], seeds=2)
"""
REFUSED = ("graphattn show sliding_window",)


def lines_of(text):
    """Indented lines, those after a prompt, those of a shell's block, and code within a sentence."""
    for block in re.findall(r"(?ms)^```sh\n(.*?)^```", text):
        if not block.startswith("#!"):  # a job of a cluster
            yield from block.replace("\\\n", "").splitlines()
    text = re.sub(r"(?ms)^```(?!console).*?^```", "", text)
    found = re.finditer(
        r"^(?:\$ |    |  )(\S.*)$|`((?:python|graphattn study) examples/[^`]+)`", text, re.MULTILINE
    )
    for line in found:
        yield " ".join((line[1] or line[2]).split())


def is_command(line):
    """True of what a reader runs, and not of a sentence, an option or a place to fill in."""
    if re.match(r"graphattn \w+ (lists|the|takes|and)\b", line) or re.search(r" [A-Z]+$", line):
        return False
    if line.startswith("make "):
        return re.match(r"make \w+ *(#|$)", line) is not None
    return re.match(rf"({PROGRAMS}) [\w.'/-]+", line) is not None


def printed():
    """The lines of each page, in its order."""
    texts = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
    texts |= {f"{name} --help": command.help for name, command in COMMANDS.items()}
    texts["WHAT"] = COMMANDS["show"].epilog
    lines = {
        where: [line for line in lines_of(text) if is_command(line)]
        for where, text in texts.items()
    }
    return {where: list(dict.fromkeys(found)) for where, found in lines.items() if found}


PRINTED = printed()


def test_there_are_many():
    assert sum(map(len, PRINTED.values())) > 60
    assert {"README.md", "examples/guide/command_line.md", "train --help"} <= set(PRINTED)


@pytest.mark.parametrize("where", PRINTED)
def test_the_shell_reads_them_and_what_they_name_is_there(where):
    folder = ROOT
    for line in PRINTED[where]:
        subprocess.run(["sh", "-n", "-c", line], check=True)
        program, *words = shlex.split(line, comments=True)
        if program == "graphattn":
            COMMANDS[words[0]].make_context(words[0], words[1:])
        elif program == "make":
            targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
            assert words[0] in targets
        elif program == "cd":
            folder = folder / words[0]
            assert folder.is_dir()
        elif words and words[0].endswith(".py"):
            assert (folder / words[0]).exists()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the pages take a reader to have, by the names that they give it."""
    folder = tmp_path_factory.mktemp("files")
    for file in (EXAMPLES / "files").iterdir():
        shutil.copy(file, folder)
    np.save(folder / "mask.npy", np.tri(8, dtype=bool))
    (folder / "mistral").mkdir()
    (folder / "mistral" / "config.json").write_text(
        '{"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 8}'
    )
    (folder / "mine.py").write_text(MINE, "utf-8")
    (folder / "moved").mkdir()
    shutil.copy(EXAMPLES / "studies" / "recall" / "study.py", folder / "moved")
    for name, height in (("flat", 0.1), ("tall", 1.0)):
        (folder / "shapes" / name).mkdir(parents=True)
        for number in range(20):
            pos = torch.rand(60, 3) * torch.tensor([1.0, 1.0, height])
            ga.save(ga.shapes.Shape(pos=pos), folder / "shapes" / name / f"{number}.ply")
    shutil.copy(folder / "shapes" / "tall" / "0.ply", folder / "scan.ply")
    np.savetxt(folder / "cloud.xyz", torch.rand(500, 3))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("where", PRINTED)
def test_they_run_as_they_stand(where, files, tmp_path):
    """Line after line, in a folder with the examples and a reader's files."""
    folder = tmp_path / "copy"
    shutil.copytree(files, folder)
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MPLBACKEND": "agg",
    }
    failed = {}
    for line in PRINTED[where]:
        if any(re.search(pattern, f"{where}: {line}") for pattern in ELSEWHERE):
            continue
        if line.startswith("cd "):
            folder = folder / line[3:]
            continue
        smaller = "".join(words for pattern, words in SMALLER.items() if re.search(pattern, line))
        line = re.sub(r"\s# .*", "", line) + smaller
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True
        )
        if (done.returncode != 0) != (line in REFUSED):
            failed[line] = done.stdout[-500:] + done.stderr[-500:]
    assert failed == {}
