"""The table of claims in README.md: every test and file that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
TABLE = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing(row: str) -> list[str]:
    """What a row names and is not there; a row that names nothing is itself missing."""
    named = re.findall(r"`([^`]+\.py)(?:::(\w+))?`", row)
    absent = [
        f"{file}::{test}"
        for file, test in named
        if (test not in names_in(file) if test else not (TESTS.parent / file).exists())
    ]
    return absent if named else [row]


def test_every_claim_and_every_error_of_the_sources_names_tests_that_exist():
    claims, errors = (
        part.strip().splitlines()[2:]
        for part in re.findall(r"\n(\|.*?)(?:\n\n|$)", TABLE + "\n", re.DOTALL)
    )
    assert (len(claims), len(errors)) == (94, 22)
    assert [name for row in claims + errors for name in missing(row)] == []
    assert missing("| a claim | A | `claims/test_reach.py::test_what_nobody_wrote` |")
    assert missing("| a claim | A | `examples/absent.py` |")
    assert missing("| a claim | A | |")
