"""Every named pattern of the literature, as the line of code that builds a small one of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from . import grid, mesh, network, points, sequence
from .pattern import Named as Named

_FAMILIES = (sequence, grid, points, mesh, network)


@dataclass(frozen=True)
class Zoo:
    """Named patterns in the order of the catalogue; prints as a table, one line each."""

    patterns: tuple[Named, ...]

    def __iter__(self) -> Iterator[Named]:
        return iter(self.patterns)

    def __len__(self) -> int:
        return len(self.patterns)

    def __contains__(self, name: object) -> bool:
        """Whether a pattern has that name, or is one of them."""
        from .pattern import names

        return name in self.patterns or (isinstance(name, str) and bool(names(self.patterns, name)))

    def __getitem__(self, name: str) -> Named:
        """The pattern of that name; upper and lower case, spaces, dashes and underscores are the same.

        What a name has in brackets is a name, too: ``zoo()["DiNA"]``.
        """
        from .pattern import find

        return find(self.patterns, name)

    def __str__(self) -> str:
        from .pattern import table

        return table(self.patterns)


def zoo() -> Zoo:
    """Every named pattern, with a line about it, its paper, and the code that builds a small one.

    Code may name small inputs of :mod:`graphattn.graphs.catalogue.inputs`, such as ``sphere`` or ``karate``.

    Example:
        >>> print(zoo()["Longformer"].code)
        sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))
        >>> zoo()["longformer"].graph().num_edges
        574
    """
    return Zoo(tuple(named for family in _FAMILIES for named in family.NAMED))
