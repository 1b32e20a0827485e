"""Processes that die or lie, full disks, edited plans: no trial is lost, and nothing wrong
goes unsaid.
"""

import builtins
import errno
import json
import os
import shutil
import sys
import time
from pathlib import Path

import hostile_trials
import pytest
from hostile_trials import ACTS
from tiny_study import tiny_run

import graphattn as ga
from graphattn.errors import GraphAttnError, LoaderError
from graphattn.study import pool, records, report
from graphattn.study import train as trial

ONE = {"controls": ("full",), "seeds": 1, "budgets": ga.study.Budget(None, 1)}


def children():
    """Processes that this one started, and theirs."""
    of = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        of.setdefault(int(fields[1]), []).append(int(stat.parent.name)) if fields[
            0
        ] != "Z" else None
    every, look = [], [os.getpid()]
    while look:
        every += (found := of.get(look.pop(), []))
        look += found
    return set(every)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_processes_that_die_or_lie_are_failed_trials_and_the_others_go_on():
    before, answers = children(), {}
    trials = [hostile_trials.Trial(name) for name in ACTS]
    given = {"c": hostile_trials.Comparison()}
    pool.run_all(given, trials, lambda one, answer: answers.setdefault(one.name, answer), 2)
    assert {
        name: words in answers[name]["error"] for name, (_, words) in ACTS.items()
    } == dict.fromkeys(ACTS, True)
    assert all(
        answer["state"] == "failed" and len(answer["error"]) < 3_000 for answer in answers.values()
    )
    time.sleep(0.2)
    assert children() <= before


def test_an_answer_that_is_no_record_is_a_failed_trial(tmp_path, monkeypatch):
    for answer in (
        {"state": "weird"},
        {"state": "done"},
        {"a": 1},
        {"state": "failed", "error": 3},
    ):
        monkeypatch.setattr(trial, "train", lambda *given, answer=answer: answer)
        found = tiny_run(tmp_path, **ONE)
        assert found.counts["failed"] == 2
        assert all("gave something that is no trial" in text for text in found.failures)


class FullDisk:
    """The ``at``-th write from now fails, and all after it."""

    def __init__(self, monkeypatch, at):
        self.left = at
        for module, name in (
            (os, "write"),
            (os, "fsync"),
            (os, "replace"),
            (builtins, "open"),
            (os, "open"),
            (os, "mkdir"),
        ):
            monkeypatch.setattr(module, name, self.failing(getattr(module, name)))

    def failing(self, real):
        def call(*given, **options):
            written = {"r", "rb"}.isdisjoint([*given[1:2], options.get("mode", "w")]) and given[
                1:2
            ] != (os.O_RDONLY,)
            if len(given) + len(options) > (real is builtins.open) and written:
                self.left -= 1
                if self.left < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*given, **options)

        return call


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_write_loses_no_trial_that_ended(
    tiny, tmp_path, monkeypatch, step
):
    answer = next(iter(tiny.records.of_key.values()))
    ended, words = [], []
    monkeypatch.setattr(trial, "train", lambda *given: ended.append(given[2].key) or answer)
    for at in range(0, 100, step):
        folder = tmp_path / str(at)
        ended.clear()
        with monkeypatch.context() as patched:
            disk = FullDisk(patched, at)
            try:
                tiny_run(folder, **ONE)
            except GraphAttnError as error:
                words.append(str(error))
            if disk.left >= 0:
                break
        kept = records.Records(folder).of_key
        assert set(ended[:-1]) <= set(kept) <= set(ended)
        assert tiny_run(folder, **ONE).counts["done"] == 2
        assert not list(folder.glob(".*.tmp"))
    assert 8 < len(words) * step == at < 99
    assert all("No space left" in text for text in words)


def paths_of(value, path=()):
    """Where values stand in a plan; of a list its first and its last element."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, one in value.items():
            yield from paths_of(one, (*path, name))
    elif isinstance(value, list):
        for number in sorted({0, len(value) - 1} & {*range(len(value))}):
            yield from paths_of(value[number], (*path, number))


WRONG = (
    "null",
    "true",
    "NaN",
    "1e999",
    "1e308",
    "-1",
    "10000000",
    '""',
    '"\\ud800\\u0000"',
    "[]",
    "{}",
    "[[[[[]]]]]",
)


@pytest.mark.slow
def test_a_plan_that_was_edited_anywhere_is_refused(tiny, tmp_path):
    whole = json.loads((tiny.folder / records.PLAN).read_text("utf-8"))
    marker, count = "the value that is replaced", 0
    for path in paths_of(whole):
        part = whole
        for name in path[:-1]:
            part = part[name]
        value = part[path[-1]]
        part[path[-1]] = marker
        text = json.dumps(whole)
        part[path[-1]] = value
        wrong = (
            WRONG[count % len(WRONG)] if WRONG[count % len(WRONG)] != json.dumps(value) else "[[]]"
        )
        (tmp_path / records.PLAN).write_text(text.replace(f'"{marker}"', wrong), encoding="utf-8")
        with pytest.raises(LoaderError, match="expected a plan of a study"):
            records.read_plan(tmp_path)
        count += 1
    assert count > 150
    content = (tiny.folder / records.PLAN).read_bytes()
    for other in (
        b"",
        b"[]",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        content[:-3],
        content + b"}",
        content.replace(b"1", b"2"),
    ):
        (tmp_path / records.PLAN).write_bytes(other)
        with pytest.raises(LoaderError, match="expected a plan of a study"):
            records.read_plan(tmp_path)


def test_a_plan_that_was_lost_is_made_again_around_the_trials_and_its_claims_are_late(
    tiny, tmp_path
):
    folder = shutil.copytree(
        tiny.folder,
        tmp_path / "lost",
        ignore=lambda *given: {"plan.json", "report.json", "report.md"},
    )
    for name in set(os.listdir(folder)) - {records.TRIALS}:
        (folder / name).unlink()
    found = tiny_run(folder, claims=tiny.registered)
    assert found.counts == tiny.counts
    assert found.verdicts[0].remarks[1:] == ("late",)
    assert len(found.records.of_key) == len(tiny.records.of_key)


def test_lines_of_no_text_are_named(tiny, tmp_path):
    folder = shutil.copytree(tiny.folder, tmp_path / "binary")
    path = folder / records.TRIALS
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong in (b"\xff\xfe\n", b"\x00\n", b"[" * 100_000 + b"\n", lines[1][:-9] + b"\n"):
        path.write_bytes(b"".join([lines[0], wrong, *lines[1:]]))
        with pytest.raises(LoaderError, match="line 2 is no"):
            report(folder)
