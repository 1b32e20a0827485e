"""WHAT on the command line: a named pattern or a file, and the graph that it is."""

import difflib
import os
from collections.abc import Callable
from typing import Any

from ..errors import OptionError
from .loading import Item
from .names import ENDINGS, NAMES, PATTERNS, builder_name
from .options import options_of, parse
from .output import step
from .wording import in_words


def pattern(what: str) -> Callable[..., Any] | None:
    """The builder of that name, if there is one."""
    name = builder_name(what)
    if name is None:
        return None
    from ..graphs import BUILDERS

    return BUILDERS[name]


def patterns() -> dict[Callable[..., Any], list[str]]:
    """Every builder and its names, its own first, in the order of the catalogue."""
    from ..graphs import BUILDERS

    return {BUILDERS[name]: [name, *others] for name, others in PATTERNS.items()}


def item(what: str, words: list[str], kind: str | None = None) -> Item:
    """The graph that ``what`` and the options after it name.

    Raises:
        GraphAttnError: If there is no such pattern or file, or its options do not fit.
    """
    if what.startswith("-"):
        hint = f"; a file of that name is ./{what}" if os.path.exists(what) else ""
        raise OptionError(f"WHAT, a pattern or a file, comes before its options; got {what} first{hint}")
    if not what.strip():
        raise OptionError(f"WHAT must be a pattern or a file, got {what!r}; graphattn patterns lists all")
    builder = pattern(what)
    if builder is not None:
        if kind is not None:
            raise OptionError(f"--as says what a file holds, and {what} is a pattern; a file of that name is ./{what}")
        return _of_pattern(what, builder, words)
    if "(" in what and not os.path.exists(what):
        return _of_expression(what, words)
    if not os.path.exists(what):
        named = _named(what, words)
        if named is not None:
            return named
    if "." in what or "/" in what or os.sep in what or os.path.exists(what):
        from .files import from_file

        return from_file(what, words, kind)
    if what in ENDINGS:
        of = f"{what}{ENDINGS[what][0]}"
        raise OptionError(f"{what} is a kind of file: name the file, such as {of}; graphattn show {what} --help")
    close = difflib.get_close_matches(what.replace("-", "_"), NAMES, 1) or _close_to(what)
    hint = f"did you mean {' or '.join(close)}?" if close else "graphattn patterns lists all"
    raise OptionError(
        f"{what} is no pattern, and no file either (a file exists, or has a dot or slash in it); {hint}; "
        "graphattn zoo lists the literature's names"
    )


def _of_expression(what: str, words: list[str]) -> Item:
    """An expression of builders, whose arguments it holds itself."""
    from ..graphs.expression import from_expression

    parse(words, (), "an expression")
    with step(f"building {what}"):
        return Item(what, from_expression(what))


def _named(what: str, words: list[str]) -> Item | None:
    """The small graph of a pattern that the literature has a name for."""
    from ..graphs import zoo

    if what not in zoo():
        return None
    named = zoo()[what]
    parse(words, (), f"{named.name}, a small example,", f"; for another size type its code: '{named.code}'")
    return Item(what, named.graph(), (f"{named.name}: {named.line}", f"a small one: {named.code}"))


def _close_to(what: str) -> list[str]:
    from ..graphs import zoo
    from ..graphs.catalogue.pattern import close_to

    return close_to(zoo().patterns, what)


def _of_pattern(what: str, builder: Callable[..., Any], words: list[str]) -> Item:
    options = options_of(builder)
    values = parse(words, options, what)
    with in_words({option.parameter: option.flags[0] for option in options}), step(f"building {what}"):
        graph = builder(**values)
    return Item(what, graph, places={k: values[k] for k in ("pos", "queries") if values.get(k) is not None})
