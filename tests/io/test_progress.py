"""Progress: bars on a terminal, and the time left by the pace since work began."""

import io
import sys
from types import SimpleNamespace

from graphattn.io import progress


class Terminal(io.StringIO):
    """A stderr that is one."""

    def isatty(self):
        return True


def test_a_terminal_gets_bars_and_nothing_else_does(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bars() as update:
        update("training", 0.5, "epoch 1: loss [bold]0.1")
        update("control", 0.25, "")
    shown = sys.stderr.getvalue()
    assert "epoch 1: loss [bold]0.1" in shown
    assert "control" in shown
    for other in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", other)
        with progress.bars() as update:
            assert update is None


def test_time_left_is_by_the_pace_of_each_piece_since_it_went_on(monkeypatch):
    clock = iter((0.0, 30.0, 30.0, 90.0))
    # other threads have theirs
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    pace = progress.Pace()
    assert pace.left("training", 0.5) == "time left unknown"  # it was resumed there
    assert pace.left("training", 0.6) == "2:00 left"
    assert pace.left("control", 0.0) == "time left unknown"
    assert pace.left("control", 0.1) == "9:00 left"
