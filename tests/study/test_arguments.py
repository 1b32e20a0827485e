"""The guide's table of arguments, and docstrings, beside the classes themselves."""

import dataclasses
import re
from pathlib import Path

import pytest

from graphattn import study

GUIDE = Path(__file__).parents[2] / "examples" / "guide" / "study.md"
KINDS = (
    study.Data,
    study.Comparison,
    study.Claim,
    study.Budget,
    study.Model,
    study.CustomModel,
    study.Training,
    study.Study,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_guide_and_the_docstring_have_every_argument(kind):
    _, _, table = GUIDE.read_text("utf-8").partition("## What each argument is")
    start = f"| `{kind.__name__}` "
    rows = table[table.index(start) + len(start) :]
    of_kind = re.split(r"\n\| `", rows)[0]
    named = set()
    for row in of_kind.splitlines():
        if row.startswith("|"):
            named |= set(re.findall(r"`(\w+)`", row.split("|")[-3]))
    arguments = {field.name for field in dataclasses.fields(kind)}
    assert named == arguments
    described = set(re.findall(r"^ {8}(\w+): ", kind.__doc__, re.MULTILINE))
    assert arguments <= described
