"""Errors, exit statuses, help."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphattn.cli
from graphattn import graphs
from graphattn.cli.app import app

ROOT = Path(__file__).parents[2]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show", "Missing argument 'WHAT'; see graphattn show --help"),
        ("bogus", "No such command 'bogus'"),
        ("show sliding_window --window 9", "No such option: --window; see graphattn show --help"),
        ("show sliding_window 64 9", "Got unexpected extra argument"),
        ("show 'full(5)' --out here.foo", "--out must end in .png"),
        ("show 'full(5)' --out here.jpg", "--out must end in .png or .pdf or .svg, got here.jpg"),
        (
            "show 'full(5)' --out nowhere/here.png",
            "--out: nowhere/here.png is no file in a folder that can be",
        ),
        (
            "show 'full(5)' --save here.txt",
            "--save must end in .npz or .csv or .json or .safetensors, got here.txt",
        ),
        (
            "show 'full(5)' --save nowhere/here.npz",
            "--save: nowhere/here.npz is no file in a folder",
        ),
        ("show 'self_loops(0)' --save nothing.csv", "expected a graph with edges"),
        ("show 'full(20000)' --save big.npz", "keep it a rule"),
        ("explain 'full(5)' --dtype int8", "'int8' is not one of"),
        ("explain 'full(5)' --device foo", "device must be an available device"),
        ("explain 'full(5)' --device cuda:99", "device must be an available device"),
        ("bench 'full(5)' --device cuda:99", "device must be an available device"),
        ("explain 'full(5)' --heads 0", "Invalid value for '--heads'"),
        (
            "explain 'full(5)' --heads 5 --kv-heads 2",
            "heads must be a multiple of kv_heads >= 1, got heads=5",
        ),
        ("doctor now", "unexpected"),
    ],
)
def test_errors_are_one_line_with_status_2(shell, line, said):
    assert said in shell.error(line)


def test_the_summary_of_torchrun_has_the_message(shell, tmp_path):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    file = tmp_path / "error.json"
    summaries = []
    for env in ({}, {"TORCHELASTIC_ERROR_FILE": str(file)}):
        assert shell("show prefix", env=env).exit_code == 2
        failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
        summaries.append(str(ChildFailedError("graphattn", {0: failure})))
    assert ["error: prefix" in summary for summary in summaries] == [False, True]
    of_torchrun = {"TORCHELASTIC_ERROR_FILE": str(file)}
    # one process prints it
    for env, lines in ((of_torchrun, 0), (of_torchrun | {"LOCAL_RANK": "0"}, 1), ({}, 1)):
        done = shell("show prefix", env={"LOCAL_RANK": "1"} | env)
        assert (done.exit_code, done.stderr.count("error: ")) == (2, lines)


def test_debug_shows_where(shell):
    for done in (shell("show prefix --debug"), shell("show prefix", env={"GRAPHATTN_DEBUG": "1"})):
        assert done.exit_code == 2
        assert "Traceback" in done.stderr
        assert done.stderr.endswith("'prefix(num_nodes: int, prefix: int)'\n")
    assert "Traceback" not in shell("show prefix", env={"GRAPHATTN_DEBUG": "0"}).stderr
    assert json.loads(shell("show prefix --debug --json").stdout)["error"]["type"] == "OptionError"


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (MemoryError(), 2, "error: not enough memory for this graph; "),
        (
            RuntimeError("can't allocate memory: you tried to allocate 1000 bytes"),
            2,
            "error: not enough memory for this graph, it takes 1,000 bytes; ",
        ),
        (OSError(28, "No space left on device"), 2, "error: [Errno 28] No space left on device\n"),
        (KeyError("x"), 70, "error: unexpected KeyError: 'x'; this is a fault of graphattn"),
    ],
)
def test_what_nobody_asked_for(shell, monkeypatch, raised, status, said):
    def builder(size: int):
        raise raised

    builder.__code__ = builder.__code__.replace(co_filename="no file of a user")
    monkeypatch.setitem(graphs.BUILDERS, "builder", builder)
    done = shell("show 'builder(3)'")
    assert done.exit_code == status
    assert done.stderr.startswith(said)
    assert (
        said.removeprefix("error: ").strip()
        in shell.json("show 'builder(3)'", status)["error"]["message"]
    )


def test_an_error_of_a_users_file_is_said_to_be_there(shell, tmp_path):
    file = tmp_path / "study.py"
    file.write_text(
        "import graphattn as ga\n\ndef study():\n    return ga.study.Comparison(nmae=3)\n",
        encoding="utf-8",
    )
    said = shell.error(f"study {file} --out {tmp_path / 'out'}")
    assert f"{file}:4: TypeError: " in said
    assert "nmae" in said
    assert "fault of graphattn" not in said


def test_a_module_that_a_users_file_misses_is_sought_beside_it_and_not_at_pypi(shell, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from beside_it.deep import chosen\n\ndef study():\n    pass\n", encoding="utf-8"
    )
    said = shell.error(f"study {file} --out {tmp_path / 'out'}")
    assert f"{file}:1: needs beside_it, and no beside_it.py is beside it" in said
    assert "pip install" not in said


COMMANDS = (
    *(
        "show",
        "explain",
        "facts",
        "audit",
        "verify",
        "bench",
        "scale",
        "study",
        "builders",
        "zoo",
        "gallery",
        "doctor",
    ),
    *("train", "evaluate", "predict", "rollout", "compare"),
)


def test_help_of_the_program(shell):
    bare = shell("")
    assert (bare.exit_code, bare.stdout) == (2, shell("--help").stdout)
    assert bare.stdout.startswith("Usage: graphattn")
    assert all(f"\n  {command} " in bare.stdout for command in COMMANDS)
    assert shell("--version").stdout.startswith("graphattn 0.")


def test_help_has_groups_of_commands_and_of_options_and_cuts_no_sentence(shell):
    page = shell("--help").stdout
    headings = [line for line in page.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "Options:",
        "Look at a graph:",
        "Check it, and see what it costs:",
        "Learn from folders of shapes:",
        "Settle what a connectivity buys:",
    ]
    assert "..." not in page.partition("Look at a graph:")[2]
    assert max(map(len, page.splitlines())) <= 80
    train = shell("train --help").stdout
    headings = re.findall(r"^(\S.*):\n  --", train, re.MULTILINE)
    assert len(headings) == 9
    assert (headings[0], headings[-1]) == ("The run", "Options")
    assert len(re.findall(r"^  --", train.partition("\nOptions:")[2], re.MULTILINE)) == 2


@pytest.mark.parametrize("command", COMMANDS[:7])
def test_help_says_what_what_may_be(shell, command):
    page = shell(f"{command} --help").stdout
    assert max(map(len, page.splitlines())) <= 80
    for words in (
        "a name of the zoo",
        "an expression of builders",
        "a file",
        'load("scan.ply")',
        "graphattn builders",
    ):
        assert words in page


@pytest.mark.slow
def test_what_help_and_the_guide_recommend_runs(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for file in (ROOT / "examples" / "files").iterdir():
        shutil.copy(file, tmp_path)
    np.save("mask.npy", np.tri(8, dtype=bool))
    Path("mistral").mkdir()
    Path("mistral/config.json").write_text(
        '{"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 8}', encoding="utf-8"
    )
    guide = (ROOT / "examples" / "guide" / "command_line.md").read_text("utf-8")
    pages = [guide, *(shell(f"{command} --help").stdout for command in COMMANDS)]
    told = {
        line.strip()
        for page in pages
        for line in re.findall(r"^ *graphattn (\w+ (?:'.*|[\w./]+))$", page, re.M)
    }
    looked = [
        line
        for line in told
        if line.split()[0] in ("show", "facts", "audit", "explain", "builders", "zoo")
    ]
    assert len(looked) >= 8
    for line in looked:
        done = shell(line)
        assert done.exit_code == 0, (line, done.output)


def test_both_ways_to_call_are_named_graphattn(monkeypatch, capsys):
    """``python -m graphattn`` runs ``__main__.py``, from which click would take another name."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / "graphattn" / "__main__.py"), "show", "--help"])
    with pytest.raises(SystemExit):
        graphattn.cli.main()
    assert "Usage: graphattn show [OPTIONS] {WHAT}" in capsys.readouterr().out


def test_help_does_not_wait_for_torch():
    code = """import shlex, sys, graphattn.cli
for line in ("--help", "--version", "", "show --help", "explain --help", "verify --help", "doctor --help", "show"):
    sys.argv = ["graphattn", *shlex.split(line)]
    try:
        graphattn.cli.main()
    except SystemExit:
        print(line, "torch" in sys.modules, file=sys.stderr)"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stderr.count("False\n") == 8
    assert "True" not in done.stderr


def test_the_files_of_the_command_line_import_one_way():
    import graphattn.cli as cli

    folder = Path(cli.__file__).parent
    imports = {
        path.stem: set(re.findall(r"^ *from \.(\w+) import", path.read_text("utf-8"), re.MULTILINE))
        for path in folder.glob("*.py")
    }
    while imports:
        last = [name for name, needs in imports.items() if not needs & set(imports)]
        assert last, f"a circle among {sorted(imports)}"
        imports = {name: needs for name, needs in imports.items() if name not in last}


def test_every_command_is_tested_here():
    assert {
        command.name or command.callback.__name__ for command in app.registered_commands
    } == set(COMMANDS)
