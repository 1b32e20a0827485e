"""Results on disk: nothing is lost in silence, and what was not written by a study is told from
what was.
"""

import json
import os
import shutil

import pytest
import torch
from tiny_study import tiny_run

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.study import Claim, records, report


@pytest.fixture
def copied(tiny, tmp_path):
    return shutil.copytree(tiny.folder, tmp_path / "copied")


def test_a_disk_that_takes_a_part_of_a_line_loses_none(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: real(handle, bytes(line)[:7]))
    found = records.Records(tmp_path)
    one = {
        "key": "a",
        "comparison": "c",
        "arm": "b",
        "positions": "none",
        "seed": 0,
        "state": "failed",
    }
    found.append(one)
    found.append({**one, "key": "b"})
    assert list(records.Records(tmp_path).of_key) == ["a", "b"]


def test_a_line_without_its_end_is_run_again(copied):
    """What is cut off at its newline alone is taken off before the next line, too."""
    path = copied / records.TRIALS
    path.write_bytes(path.read_bytes()[:-1])
    assert len(records.Records(copied).of_key) == 37


WRONG_LINES = {
    "is no JSON": "{",
    "is no trial": "[1]",
    "is no trial, without 'comparison'": '{"key": "a"}',
    "its accuracy must be from 0 to 1, got 'high'": {"accuracy": "high"},
    "its accuracy must be from 0 to 1, got 5.0": {"accuracy": 5.0},
    "its answers must be from 0 to inf, got -1": {"answers": -1},
    "its state must be done, capped or failed, got 'weird'": {"state": "weird"},
    "its cpu_s must be from 0 to inf, got True": {"cpu_s": True},
    "without 'initial'": {"initial": ...},
}


@pytest.mark.parametrize("words", WRONG_LINES)
def test_a_line_that_is_no_trial_is_named(words, copied):
    path, wrong = copied / records.TRIALS, WRONG_LINES[words]
    first, *rest = path.read_text("utf-8").splitlines()
    if isinstance(wrong, dict):
        wrong = json.dumps(
            {k: v for k, v in {**json.loads(first), **wrong}.items() if v is not ...}
        )
    path.write_text("\n".join([first, wrong, *rest, "\r\n"]), encoding="utf-8")
    with pytest.raises(
        LoaderError, match=f"line 2 is .*{words.removeprefix('is ')}.* run the study again"
    ):
        report(copied)


def edited(path, number, **changes):
    lines = path.read_text("utf-8").splitlines(keepends=True)
    lines[number] = json.dumps({**json.loads(lines[number]), **changes}) + "\n"
    path.write_text("".join(lines), encoding="utf-8")


def test_a_line_that_was_changed_added_or_removed_by_hand_breaks_the_chain_and_is_said(copied):
    path = copied / records.TRIALS
    whole = path.read_text("utf-8")
    assert records.Records(copied).broken == report(copied).records.broken == []
    edited(path, 1, accuracy=0.999)
    with pytest.warns(
        UserWarning, match=r"trials.jsonl was changed by hand: the hash is another at line 2$"
    ):
        found = report(copied)
    assert "**Warning:** trials.jsonl was changed by hand" in str(found)
    assert found.to_dict()["cautions"][0].endswith("at line 2")
    one = json.loads(path.read_text("utf-8").splitlines()[1])
    del one["hash"]
    # who knows how: the next one
    edited(path, 1, hash=records._hash(json.loads(whole.splitlines()[0])["hash"], one))
    assert records.Records(copied).broken == [3]
    lines = whole.splitlines(keepends=True)
    for changed, broken in (
        (lines[:4] + lines[5:], [5]),
        ([lines[1], lines[0], *lines[2:]], [1, 2, 3]),
    ):
        path.write_text("".join(changed), encoding="utf-8")
        assert records.Records(copied).broken == broken
    path.write_text(whole, encoding="utf-8")
    records.Records(copied).append({**one, "key": "another"})
    records.Records(copied).append({**one, "key": "and another"})
    kept = records.Records(copied)
    assert (kept.broken, len(kept.chain)) == ([], 40)
    assert f"trials.jsonl has 40 lines, the last of hash {kept.last}." in str(report(copied))


def test_a_refused_line_is_taken_out_by_the_study_and_that_is_said(copied):
    path = copied / records.TRIALS
    lines = path.read_bytes().splitlines(keepends=True)
    one = json.loads(lines[6])
    edited(path, 2, accuracy=5.0)
    path.write_bytes(
        path.read_bytes().replace(lines[6], b"\x00garbage\n").replace(lines[29], b"{}\n")
    )
    with pytest.raises(LoaderError, match="line 3 is no trial"):
        report(copied)
    with pytest.warns(UserWarning, match="3 lines taken out of trials.jsonl, which held no trial"):
        found = tiny_run(copied, claims=[Claim("window", "full")])
    assert (found.counts["done"], found.records.broken, len(found.records.chain)) == (38, [], 41)
    assert "garbage" in path.read_text("utf-8")
    assert found.records.of_key[one["key"]]["accuracy"] == one["accuracy"]
    assert not any("by hand" in text for text in found.cautions)
    edited(path, 20, accuracy=0.5)
    assert records.Records(copied).broken == [21]


def test_lines_that_were_removed_at_the_end_stay_known(copied):
    path = copied / records.TRIALS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    last = json.loads(lines[-1])["hash"]
    for run in (report, lambda folder: tiny_run(folder, claims=[Claim("window", "full")])):
        with pytest.warns(
            UserWarning, match=f"changed by hand: it had 38 lines, the last of hash {last}"
        ):
            found = run(copied)
    assert found.counts["done"] == len(found.records.chain) == 38
    assert found.records.broken == []
    path.write_bytes(b"".join(lines))
    assert not any("by hand" in text for text in report(copied).cautions)


def test_a_line_without_a_hash_is_no_line_of_a_chain(copied):
    path = copied / records.TRIALS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    del lines[3]["hash"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert records.Records(copied).broken == [4, 5]


def test_a_study_that_ended_before_its_plan_may_be_started_again(tmp_path):
    (tmp_path / records.LOCK).touch()
    assert (
        tiny_run(tmp_path, controls=(), seeds=1, budgets=ga.study.Budget(None, 1)).counts["done"]
        == 1
    )


def test_a_study_leaves_the_callers_random_numbers_alone(copied):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny_run(copied, claims=[Claim("window", "full")], seeds=2)
    assert torch.equal(torch.rand(3), expected)


def test_failures_are_those_of_the_plan(copied):
    one = json.loads((copied / records.TRIALS).read_text("utf-8").splitlines()[0])
    records.Records(copied).append(
        {**one, "key": "of an arm that is gone", "state": "failed", "error": "x"}
    )
    assert list(report(copied).failures) == []
    records.Records(copied).append({**one, "state": "failed", "error": "two\nlines"})
    assert [text.rpartition(": ")[2] for text in report(copied).failures] == ["two lines"]
