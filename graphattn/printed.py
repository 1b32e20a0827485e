"""What results print: all by ``print``, a few lines where a notebook shows them; counts in words."""

from html import escape
from math import isfinite

from .arguments import clipped
from .errors import singular

_MOST_LINES = 10
_MOST_LETTERS = 160  # of a line


class Printed:
    """A result whose ``str`` has all of it, ``repr`` at most ten lines, and a notebook both.

    A subclass defines ``in_full``; a dataclass is made with ``repr=False``.
    """

    def in_full(self) -> str:
        """All of it, as :func:`~graphattn.errors.singular` takes it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return singular(self.in_full())

    def few_lines(self) -> list[str]:
        """The lines of ``repr``: all if they are few, else the first ones and the last one."""
        lines = str(self).splitlines()
        more = len(lines) - _MOST_LINES
        if more > 0:
            more += 1  # the line that says so
            lines[_MOST_LINES - 2 : -1] = [f"... {more} lines more, by print"]
        return lines

    def __repr__(self) -> str:
        lines = self.few_lines()[:_MOST_LINES]
        return singular("\n".join(clipped(line, _MOST_LETTERS) for line in lines))

    def _repr_html_(self) -> str:
        """The view in a notebook: the few lines, which open to all of them."""
        few = f"<pre>{escape(repr(self))}</pre>"
        every = f"<pre>{escape(str(self))}</pre>"
        if every == few:
            return few
        return f"<details><summary>{few}</summary>{every}</details>"


def json_number(number: float) -> float | str:
    """A number as JSON holds it; NaN and infinity, which it lacks, as words."""
    if isfinite(number):
        return number
    return str(number)


def counted(number: int, noun: str, several: str = "") -> str:
    """A number with its noun, in the plural unless it is one.

    Args:
        number: How many.
        noun: In the singular.
        several: In the plural, where that is not the noun with an "s" or an "es".

    Example:
        >>> counted(1, "edge"), counted(2000, "class"), counted(0, "vertex", "vertices")
        ('1 edge', '2,000 classes', '0 vertices')
    """
    if number == 1:
        return f"1 {noun}"
    ending = "s"
    if noun.endswith("s"):
        ending = "es"
    return f"{number:,} {several or noun + ending}"
