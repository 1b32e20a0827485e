"""Fields of dataclasses, each described once: for ``help`` in Python and on the command line."""

from dataclasses import field, fields
from textwrap import fill
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


def option(
    default: Any,
    text: str,
    *,
    group: str | None = None,
    metavar: str | None = None,
    least: float | None = None,
    flag: str = "",
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: Its default.
        text: Its description.
        group: The group of ``--help`` in which it stands; "" is the last one, and
            ``None`` is of what no command line offers.
        metavar: The word for its value there.
        least: Its least value.
        flag: Its option there, if that is not its name.
    """
    metadata = {"text": text, "group": group, "metavar": metavar, "least": least, "flag": flag}
    return field(default=default, metadata=metadata)


def described(options: T) -> T:
    """A dataclass whose documentation ends with its fields, as :func:`option` describes them."""
    indent = " " * 8
    lines = []
    for item in fields(options):
        if item.name in options.__annotations__ and "text" in item.metadata:
            line = f"{item.name}: {item.metadata['text']}"
            lines.append(fill(line, 100, initial_indent=" " * 4, subsequent_indent=indent))
    arguments = "\n".join(lines)
    options.__doc__ = f"{options.__doc__}\nArgs:\n{arguments}"
    return options
