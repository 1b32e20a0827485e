"""Results on disk: nothing is lost in silence, and what was not written by a study is told from what was."""

import json
import os
import shutil

import pytest
import torch
from tiny_study import tiny_run

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.study import Claim, records, report

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def copied(tiny, tmp_path):
    return shutil.copytree(tiny.folder, tmp_path / "copied")


def test_a_disk_that_takes_a_part_of_a_line_loses_none(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: real(handle, bytes(line)[:7]))
    found = records.Records(tmp_path)
    one = {"key": "a", "comparison": "c", "arm": "b", "positions": "none", "seed": 0, "state": "failed"}
    found.append(one)
    found.append({**one, "key": "b"})
    assert list(records.Records(tmp_path).of_key) == ["a", "b"]


def test_a_line_without_its_end_is_run_again(copied):
    """What is cut off at its newline alone is taken off before the next line, too."""
    path = copied / records.TRIALS
    path.write_bytes(path.read_bytes()[:-1])
    assert len(records.Records(copied).of_key) == 29


WRONG_LINES = {
    "is no JSON": "{",
    "is no trial": "[1]",
    "is no trial, without 'comparison'": '{"key": "a"}',
    "its key must be text": {"key": 3},
    "its scores numbers": {"accuracy": "high"},
    "without 'initial'": {"initial": ...},
}


@pytest.mark.parametrize("words", WRONG_LINES)
def test_a_line_that_is_no_trial_is_named(words, copied):
    path, wrong = copied / records.TRIALS, WRONG_LINES[words]
    first, *rest = path.read_text().splitlines()
    if isinstance(wrong, dict):
        wrong = json.dumps({k: v for k, v in {**json.loads(first), **wrong}.items() if v is not ...})
    path.write_text("\n".join([first, wrong, *rest, "\r\n"]))
    with pytest.raises(LoaderError, match=f"line 2 is .*{words.removeprefix('is ')}.* or remove the line"):
        report(copied)


@pytest.mark.parametrize(
    "where", ["trials", "registered", "machine", "arms", "budgets", "ceiling", "seed", "deep", "none"]
)
def test_a_plan_of_which_no_page_can_be_made_is_no_plan(where, copied):
    path = copied / records.PLAN
    plan = path.read_text().replace(f'"{where}":', '"other":')
    path.write_text({"deep": "[" * 100_000, "none": '{"study": "s", "comparisons": {}}'}.get(where, plan))
    with pytest.raises(LoaderError, match="expected a plan of a study"):
        report(copied)


def test_a_study_that_ended_before_its_plan_may_be_started_again(tmp_path):
    (tmp_path / records.LOCK).touch()
    assert tiny_run(tmp_path, controls=(), seeds=1, budgets=ga.study.Budget(None, 1)).counts["done"] == 1


def test_a_study_leaves_the_callers_random_numbers_alone(copied):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny_run(copied, claims=[Claim("window", "full")], seeds=2)
    assert torch.equal(torch.rand(3), expected)


def test_failures_are_those_of_the_plan(copied):
    one = json.loads((copied / records.TRIALS).read_text().splitlines()[0])
    records.Records(copied).append({**one, "key": "of an arm that is gone", "state": "failed", "error": "x"})
    assert list(report(copied).failures) == []
    records.Records(copied).append({**one, "state": "failed", "error": "two\nlines"})
    assert [text.rpartition(": ")[2] for text in report(copied).failures] == ["two lines"]
