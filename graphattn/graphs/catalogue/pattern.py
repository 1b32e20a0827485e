"""One named pattern: a name from the literature and the code that builds it."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import GraphError
from ...graph import AttentionGraph


@dataclass(frozen=True)
class Named:
    """A pattern as papers name it.

    Args:
        name: As the literature writes it.
        family: ``"sequence"``, ``"grid"``, ``"points"``, ``"mesh"`` or ``"network"``.
        line: What it says, in one line without a full stop.
        code: An expression of builders for a small graph; besides the names of :mod:`graphattn.graphs` it may use
            ``torch`` and the inputs of :mod:`graphattn.graphs.catalogue.inputs`.
        paper: Author and year, or ``""``.
    """

    name: str
    family: str
    line: str
    code: str
    paper: str = ""

    def graph(self) -> AttentionGraph:
        """The small graph that ``code`` builds."""
        import torch

        from ... import graphs
        from ...graph import disjoint_union
        from . import inputs

        names = {name: getattr(graphs, name) for name in graphs.__all__}
        names |= {name: getattr(inputs, name) for name in inputs.__all__}
        return eval(self.code, {"torch": torch, "disjoint_union": disjoint_union, **names})  # our own constant text


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.strip().lower())


def find(patterns: Sequence[Named], name: str) -> Named:
    """The pattern of that name.

    Raises:
        GraphError: If there is none; the message names the closest.
    """
    by_name = {_plain(each.name): each for each in patterns}
    if _plain(str(name)) in by_name:
        return by_name[_plain(str(name))]
    close = [by_name[each].name for each in difflib.get_close_matches(_plain(str(name)), by_name, 3)]
    hint = f"did you mean {' or '.join(close)}?" if close else "print(graphattn.graphs.zoo()) lists them"
    raise GraphError(f"no pattern is called {name!r}; {hint}")


def table(patterns: Sequence[Named]) -> str:
    """A line for each pattern, under the name of its family."""
    wide = max(len(each.name) for each in patterns)
    lines: list[str] = []
    family = ""
    for each in patterns:
        if each.family != family:
            family = each.family
            lines += [*([""] if lines else []), family]
        paper = f" ({each.paper})" if each.paper else ""
        lines.append(f"  {each.name:<{wide}}  {each.line}{paper}")
    return "\n".join(lines)
