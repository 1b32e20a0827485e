"""WHAT on the command line: a name of the zoo, an expression of builders, or a file."""

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import GraphAttnError, OptionError
from .output import step

_LEAST_SHOWN = 32  # nodes of a pattern, and
_ROOM = 4  # times its largest number, but
_MOST_SHOWN = 4096


@dataclass(frozen=True)
class NamedGraph:
    """A graph, and the ``what`` that names it."""

    what: str
    graph: Any
    notes: tuple[str, ...] = ()
    places: dict[str, Any] = field(default_factory=dict)  # keyword arguments of graphattn.viz.plot
    paths: tuple[str, ...] = ()  # of the files that were read
    title: str = ""  # the name of the zoo, for a picture


def item(what: str) -> NamedGraph:
    """The graph that ``what`` names.

    Raises:
        GraphAttnError: If there is no such name or file, or the expression makes no graph.
    """
    from ..graph import Pattern

    subject = item_or_pattern(what)
    if isinstance(subject.graph, Pattern):
        raise OptionError(f"{subject.graph} is open in its size; give a number in the place of ...")
    return subject


def shown_item(what: str) -> NamedGraph:
    """The graph that ``what`` names; of a pattern, whose size is open, one that shows its rule."""
    from ..graph import Pattern

    subject = item_or_pattern(what)
    if not isinstance(subject.graph, Pattern):
        return subject
    numbers = map(int, re.findall(r"\d+", str(subject.graph.expression)))
    size = min(max(_LEAST_SHOWN, _ROOM * max(numbers, default=0)), _MOST_SHOWN)
    try:
        graph = subject.graph(size)
    except GraphAttnError:
        return item(what)
    note = f"the size is open: {size:,} nodes are shown; give another number in its place"
    return replace(subject, graph=graph, notes=(*subject.notes, note))


def item_or_pattern(what: str) -> NamedGraph:
    """The graph that ``what`` names, or a pattern whose size is open."""
    from ..graph import AttentionGraph, Pattern
    from ..graphs import zoo
    from ..graphs.catalogue import inputs
    from ..graphs.expression import from_expression
    from .files import Files

    files = Files()
    if what in zoo():
        pattern = zoo()[what]
        return NamedGraph(
            what,
            pattern.graph(),
            (f"{pattern.name}: {pattern.line}", f"a small one: {pattern.code}"),
            title=pattern.name,
        )
    with step(f"building {what}"):
        if os.path.lexists(what) or ("(" not in what and ("." in what or os.sep in what)):
            graph = _of_file(what, files)
        elif set(what) & set("(|&@~") or what in inputs.__all__:
            graph = from_expression(what, {"load": files.load})
        else:
            raise OptionError(_unknown(what))
    if not isinstance(graph, AttentionGraph | Pattern):
        raise OptionError(f"{what} holds a {type(graph).__name__}; WHAT is one graph")
    if isinstance(graph, Pattern):
        places = {}
    else:
        places = files.places_of(graph, what)
    return NamedGraph(what, graph, tuple(files.notes), places, tuple(files.paths))


def _of_file(path: str, files: Any) -> Any:
    file = files.load(path)
    try:
        return file.graph()
    except GraphAttnError as error:
        if os.path.isfile(path) and not isinstance(error, OptionError):
            error.args = (f"{error} Options stand in '{str(file)[:-1]}, ...)'.",)
        raise


def _unknown(what: str) -> str:
    """The error for a word that is no graph, with the nearest names."""
    import difflib

    from ..graphs import zoo
    from ..graphs.catalogue.pattern import close_to
    from ..graphs.expression import callables, signature_of

    builders = callables()
    if what in builders:
        return (
            f"{what} is a builder and needs its arguments: '{what}{signature_of(builders[what])}'"
        )
    close = difflib.get_close_matches(what.replace("-", "_"), builders, 1)
    if not close:
        close = close_to(zoo().patterns, what)
    if close:
        hint = f"did you mean {' or '.join(map(repr, close))}?"
    else:
        hint = "graphattn zoo and graphattn builders list what there is"
    return f"{what!r} is no name of the zoo, no expression of builders and no file; {hint}"
