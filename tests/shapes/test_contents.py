"""The table of the guide: what becomes of each part of a format, as its reader has it."""

from pathlib import Path

import pytest

import graphattn.shapes.files  # noqa: F401 (its readers register)
from graphattn.shapes.files.raw import CONTENTS, READERS

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "files.md"
HEAD = "| endings | read | noted in `shape.notes` | refused |"


def table():
    lines = [HEAD, "|---|---|---|---|"]
    for endings, contents in sorted(CONTENTS.items()):
        cells = [f"`{' '.join(endings)}`", *contents]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_guide_has_the_table_of_the_readers():
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(HEAD)
    assert text[start : text.index("\n\n", start)] == table(), f"put in its place:\n{table()}"


def test_every_ending_has_a_row():
    rows = [ending for endings in CONTENTS for ending in endings]
    assert sorted(rows) == sorted(READERS)


@pytest.mark.parametrize("endings", CONTENTS)
def test_a_cell_of_a_row_stays_a_cell(endings):
    for text in CONTENTS[endings]:
        assert "|" not in text
        assert "\n" not in text
        assert text == text.strip()
