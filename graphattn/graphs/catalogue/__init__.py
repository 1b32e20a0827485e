"""Named patterns of the literature, each with a line of code that builds a small graph of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import grid, mesh, network, points, sequence
from .pattern import Named as Named
from .pattern import find, names, table

_FAMILIES = (sequence, grid, points, mesh, network)


@dataclass(frozen=True, repr=False)
class Zoo(Mapping[str, Named]):
    """Named patterns by name, in the order of the catalogue; prints as a table, one line each."""

    patterns: tuple[Named, ...]

    def __iter__(self) -> Iterator[str]:
        return (pattern.name for pattern in self.patterns)

    def __len__(self) -> int:
        return len(self.patterns)

    def __contains__(self, name: object) -> bool:
        """True if exactly one pattern has that name."""
        return isinstance(name, str) and len(names(self.patterns, name)) == 1

    def __getitem__(self, name: str) -> Named:
        """The pattern of that name; case, spaces, dashes and underscores are ignored.

        The part of a name in brackets is a name, too: ``zoo()["DiNA"]``.
        """
        return find(self.patterns, name)

    def __repr__(self) -> str:
        return f"Zoo of {len(self)} patterns: print it for one line each"

    def __str__(self) -> str:
        return table(self.patterns)


def zoo() -> Zoo:
    """Every named pattern, with a description, its paper, and the code that builds a small graph.

    Code may name small inputs of :mod:`graphattn.graphs.catalogue.inputs`, such as ``sphere`` or
    ``karate``.

    Example:
        >>> [name for name, each in zoo().items() if each.family == "mesh"][:2]
        ['one-ring', 'one-ring and self']
        >>> print(zoo()["Longformer"].code)
        sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))
        >>> zoo()["longformer"].graph().num_edges
        574
    """
    return Zoo(tuple(named for family in _FAMILIES for named in family.NAMED))
