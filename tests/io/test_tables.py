"""Comma-separated values: what a spreadsheet runs is written as a text."""

import csv
import io

import pytest

from graphattn.io.tables import comma_separated
from graphattn.training.predict import _table as table_of_predictions
from graphattn.training.running.loop import _write_log

HOSTILE = ["=cmd|' /C calc'!A0.ply", "@SUM(1+1)", "+2+3", "-2+3", "\t=1", "\r=1", '=HYPERLINK("x")']


@pytest.mark.parametrize("text", HOSTILE)
def test_a_formula_is_a_text_behind_an_apostrophe(text):
    for table in (
        comma_separated([[text, 1.5], ["a", text]]),
        table_of_predictions([text, "b"], [["a", text]]),
    ):
        cells = [cell for row in csv.reader(io.StringIO(table, newline="")) for cell in row]
        assert cells.count(f"'{text}") == 2
        assert text not in cells


def test_numbers_and_other_texts_are_as_they_are():
    row = [-1.5, "-1.5", "+3", "-inf", "a=b", "", None, "x, y", 7]
    assert comma_separated([row]) == '-1.5,-1.5,+3,-inf,a=b,,,"x, y",7\n'


def test_classes_that_are_formulas_are_no_cells_of_their_own_in_the_table_of_a_training(tmp_path):
    history = [{"epoch": 1, "loss": 0.5, "val_iou": dict.fromkeys(HOSTILE, 0.25)}]
    _write_log(tmp_path, history)
    head, row = csv.reader((tmp_path / "metrics.csv").open(newline=""))
    assert head == ["epoch", "loss", *(f"IoU of {name}" for name in HOSTILE)]
    assert row == ["1", "0.5"] + ["0.25"] * len(HOSTILE)
