"""Commands that README, guide, start pages and ``--help`` print: the shell reads them, and what they name
is there.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from graphattn.cli.app import app

ROOT = Path(__file__).parent.parent
COMMANDS = get_command(app).commands
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "examples" / "guide").glob("*.md")),
    *sorted((ROOT / "examples" / "site" / "pages").glob("*.md")),
]
PROGRAMS = ("graphattn", "python", "make", "cd", "torchrun", "git", "pip")


def lines_of(text):
    """Indented lines, those after a prompt and those of a shell's block that begin with a program."""
    for block in re.findall(r"(?ms)^```sh\n(.*?)^```", text):
        if not block.startswith("#!"):  # a job of a cluster
            yield from block.replace("\\\n", "").splitlines()
    yield from re.findall(
        r"(?m)^(?:\$ |    |  )(\S.*)$", re.sub(r"(?ms)^```(?!console).*?^```", "", text)
    )


def printed():
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    texts |= {f"{name} --help": f"{c.help}\n{c.epilog or ''}" for name, c in COMMANDS.items()}
    found = {}
    for where, text in texts.items():
        for line in lines_of(text):
            line = line.strip()
            is_command = line.split()[0] in PROGRAMS and re.match(r"\w+ [\w.'/-]+", line)
            is_prose = line.startswith("make ") and not re.match(r"make \w+ *(#|$)", line)
            if (
                is_command
                and not is_prose
                and not re.match(r"graphattn \w+ (lists|the|takes|and)\b", line)
            ):
                found.setdefault(line, where)
    return found


PRINTED = printed()


def test_there_are_many():
    assert len(PRINTED) > 40
    assert {"README.md", "command_line.md", "train --help"} <= set(PRINTED.values())


@pytest.mark.parametrize("line", PRINTED)
def test_the_shell_reads_it_and_what_it_names_is_there(line):
    subprocess.run(["sh", "-n", "-c", line], check=True)
    program, *words = shlex.split(line, comments=True)
    if program == "graphattn":
        COMMANDS[words[0]].make_context(words[0], words[1:])
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert words[0] in targets
    elif program == "cd":
        assert (ROOT / words[0]).is_dir()
    elif words and words[0].endswith(".py"):
        assert (ROOT / words[0]).exists() or (ROOT / "examples" / "benchmarks" / words[0]).exists()
