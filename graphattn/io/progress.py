"""Progress of long work, in training and studies: bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_STEPS = 10_000  # of a bar
Update = Callable[[str, float, str], None]


@contextmanager
def bars() -> Iterator[Update | None]:
    """``update(name, done, words)`` moves a bar from 0 to 1; ``None`` if stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    screen = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    with Progress(*columns, console=screen, transient=True, redirect_stdout=True) as bar:
        tasks: dict[str, Any] = {}

        def update(name: str, done: float, words: str) -> None:
            steps = round(_STEPS * done)
            if name not in tasks:
                # what was done before has no pace
                tasks[name] = bar.add_task(name, total=_STEPS, completed=steps)
            bar.update(tasks[name], completed=steps, description=words or name)

        yield update


class Pace:
    """Estimates of the time left, at the pace since the first call for a piece of work."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, float]] = {}

    def left(self, name: str, done: float) -> str:
        """Minutes and seconds until ``done`` is 1: "12:05 left"; unknown at the first call.

        Example:
            >>> pace = Pace()
            >>> pace.left("reading", 0.0), pace.left("reading", 1.0)
            ('time left unknown', '0:00 left')
        """
        now = time.monotonic()
        start, first = self._began.setdefault(name, (now, done))
        if done <= first:
            return "time left unknown"
        seconds = int((now - start) / (done - first) * (1 - done))
        return f"{seconds // 60}:{seconds % 60:02} left"
