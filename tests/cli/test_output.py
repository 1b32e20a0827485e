"""Terminals, pipes and streams."""

import io
import os
import sys
import time
import warnings

import pytest

from graphattn.cli import output
from graphattn.cli.app import app


def status(*words):
    with pytest.raises(SystemExit) as done:
        app(list(words))
    return done.value.code


def test_a_narrow_terminal_gets_the_mask_without_blanks(shell):
    wide = shell("show 'causal(31)'").stdout
    narrow = shell("show 'causal(31)'", env={"COLUMNS": "40"}).stdout
    line = next(line for line in wide.splitlines() if line.startswith("█"))
    assert len(line) == 61
    assert line.replace(" ", "") in narrow.splitlines()
    assert line not in narrow
    assert max(len(line) for line in narrow.splitlines()[2:]) <= 40


def test_progress_is_for_terminals_and_for_what_takes_long(monkeypatch):
    class Terminal(io.StringIO):
        encoding = "ascii"

        def isatty(self):
            return True

    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.step("counting ░") as tell:
        wait_for("counting -", terminal)
        tell("sheep")
        wait_for("counting -: sheep", terminal)
    assert terminal.getvalue().isascii()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(output, "_LONG", 1000.0)
    with output.step("quick"):
        pass
    monkeypatch.setattr(output, "_LONG", 0.01)
    with output.step("slow") as tell:
        tell("not without a terminal")
        wait_for("slow", pipe)
    assert pipe.getvalue() == "graphattn: slow ...\n"


def wait_for(text, stream):
    """Until another thread has written it; two minutes are for a machine that is very busy."""
    for _ in range(12_000):
        if text in stream.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(f"no {text!r} in {stream.getvalue()!r}")


def test_nobody_reads(monkeypatch, capfd):
    monkeypatch.setattr(output, "_LONG", 1000.0)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        assert status("show", "causal(31)") == output.CLOSED
    assert capfd.readouterr().err == ""


def test_streams_may_be_closed_or_full(monkeypatch, capsys):
    monkeypatch.setattr(output, "_LONG", 1000.0)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert status("show", "causal(3)") == 0
        assert status("show", "nope") == 2
    assert capsys.readouterr().out.startswith("AttentionGraph(causal(3)")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert status("show", "causal(3)") == 0
        assert status("show", "nope") == 2
    assert capsys.readouterr().err.startswith("error: 'nope' is no name of the zoo")
    full = io.StringIO()
    full.flush = lambda: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert status("show", "causal(3)") == 2
        assert status("show", "causal(3)", "--json") == 2
        assert status("show", "nope", "--json") == 2
        patch.setattr(sys, "stderr", full)
        assert status("show", "causal(3)") == 2
    assert capsys.readouterr().err.count("No space left on device") == 2


def test_a_warning_is_said_once(capsys):
    with output.warnings_in_lines():
        for number in (1, 2, 1, 1):
            warnings.warn(f"file {number}", stacklevel=1)
    assert capsys.readouterr().err == "warning: file 1\nwarning: file 2\n"
