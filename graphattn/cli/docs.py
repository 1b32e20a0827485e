"""What a docstring says, as plain text for a terminal."""

import inspect
import re
from collections.abc import Callable
from typing import Any

_ARGUMENT = re.compile(r"    (\w+): (.*)")


def summary(function: Callable[..., Any]) -> str:
    """The first paragraph, on one line.

    Example:
        >>> from graphattn.graphs import full
        >>> summary(full)
        'Every node reads every node, itself included: an encoder.'
    """
    return plain(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0])


def arguments(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring says of each argument, each on one line.

    Example:
        >>> from graphattn.graphs import sliding_window
        >>> arguments(sliding_window)["num_nodes"]
        'N.'
    """
    found: dict[str, str] = {}
    name = None
    for line in _section(function, "Args:"):
        start = _ARGUMENT.fullmatch(line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif name is not None:
            found[name] += f" {line.strip()}"
    return {name: plain(text) for name, text in found.items()}


def example(function: Callable[..., Any]) -> list[str]:
    """The lines of the example that a doctest runs."""
    return [line.removeprefix("    ") for line in _section(function, "Example:")]


def plain(text: str) -> str:
    """``text`` without reStructuredText, on one line.

    Example:
        >>> plain("The ``k`` of :func:`~graphattn.graphs.knn`, as")
        'The k of knn, as'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?([^`]*)`", r"\1", text)
    return " ".join(text.replace("``", "").replace("*What differs:*", "What differs:").split())


def _section(function: Callable[..., Any], title: str) -> list[str]:
    """The lines under a title, up to the next title."""
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    if title not in lines:
        return []
    first = lines.index(title) + 1
    last = next((i for i in range(first, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
    return lines[first:last]
