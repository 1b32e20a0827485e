"""The project's own table of shapes; each can be made at any size."""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import OptionError
from ..graph import AttentionGraph
from ..graphs import causal, cell_partition, full, global_tokens, sliding_window
from .makers import big_bird, near_points, power_law, sphere_rings


@dataclass(frozen=True)
class Shape:
    """One row of the table: a graph of about ``num_nodes`` nodes."""

    name: str
    make: Callable[[int], AttentionGraph]
    num_nodes: int
    quick_nodes: int
    heads: int = 4
    head_dim: int = 32
    batch: int = 1
    only_ours: bool = False  # where no peer can hold its intermediate results
    rivals: tuple[str, ...] = ()  # whom the figures compare it with

    @property
    def weight(self) -> int:
        """About how much of a budget it wants."""
        return 25 if self.only_ours else 5 + 5 * len(self.rivals)


def _window(num_nodes: int) -> AttentionGraph:
    return sliding_window(num_nodes, 257, causal=False)


def _longformer(num_nodes: int) -> AttentionGraph:
    return _window(num_nodes) | global_tokens(num_nodes, tuple(range(min(num_nodes, 16))))


def _swin(num_nodes: int) -> AttentionGraph:
    side = 7 * max(1, round(num_nodes**0.5 / 7))
    return cell_partition((side, side), (7, 7), (3, 3))


_PYG = ("PyG", "PyG compiled", "DGL")
_HAND = (*_PYG, "gather by hand")
_TABLE = (
    Shape("knn16", lambda n: near_points(n, 16), 16_384, 2_048, rivals=_HAND),
    Shape("knn16_shuffled", lambda n: near_points(n, 16, shuffled=True), 16_384, 2_048),
    Shape("knn64", lambda n: near_points(n, 64), 16_384, 2_048, rivals=_HAND),
    Shape("mesh", sphere_rings, 40_962, 2_562, rivals=_PYG),
    Shape("mesh_relabelled", lambda n: sphere_rings(n).relabelled()[0], 40_962, 2_562, rivals=_PYG),
    Shape("window", _window, 8_192, 1_024, rivals=("SDPA + mask",)),
    Shape("longformer", _longformer, 8_192, 1_024, rivals=("SDPA + mask",)),
    Shape("bigbird", big_bird, 8_192, 1_024),
    Shape("swin", _swin, 56 * 56, 14 * 14, heads=3, batch=8, rivals=("Swin by hand",)),
    Shape("full", full, 2_048, 512, rivals=("SDPA",)),
    Shape("causal", causal, 2_048, 512, rivals=("SDPA",)),
    Shape("power_law", power_law, 100_000, 5_000, rivals=_PYG),
    Shape("knn16_million", lambda n: near_points(n, 16), 1_000_000, 20_000, head_dim=16, only_ours=True),
)
#: Shapes by name, in the order in which they are run.
SHAPES: dict[str, Shape] = {shape.name: shape for shape in _TABLE}
#: Tables by name: what ``--suite`` takes beside names of shapes.
SUITES: dict[str, tuple[str, ...]] = {
    "cpu": tuple(SHAPES),
    "points": ("knn16", "knn16_shuffled", "knn64", "knn16_million"),
    "figures": tuple(shape.name for shape in _TABLE if shape.rivals or shape.only_ours),
    "sequence": ("window", "longformer", "bigbird", "full", "causal"),
}


def shapes(names: str) -> tuple[Shape, ...]:
    """The shapes that a comma-separated list of shapes and tables names.

    Raises:
        OptionError: If there is no shape or table of a name.
    """
    table: dict[str, Shape] = {}
    for name in names.replace("-", "_").split(","):
        if name not in SHAPES and name not in SUITES:
            known = f"a table: {', '.join(SUITES)}; or shapes: {', '.join(SHAPES)}"
            raise OptionError(f"suite must be {known}; got {name!r}")
        table |= {key: SHAPES[key] for key in SUITES.get(name, (name,))}
    return tuple(table.values())
