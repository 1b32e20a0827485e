"""Operations that a stack of transformer blocks takes on the graphs of its layers."""

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import OptionError
from ..graph.kinds.layers import Layers, in_a_row, unions
from ..graphs.arguments import whole
from ..printed import Printed

_PREFIXES = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, repr=False)
class Flops(Printed):
    """Floating-point operations of one forward pass on one example, by :func:`flops`.

    Args:
        attention: Scores and weighted sums, edge by edge.
        all_pairs: What ``attention`` would be if every target read every source.
        projections: Of queries, keys, values and outputs.
        feed_forward: Of the feed-forwards.
    """

    attention: int
    all_pairs: int
    projections: int
    feed_forward: int

    @property
    def total(self) -> int:
        """Operations of the whole block."""
        return self.attention + self.projections + self.feed_forward

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain Python values."""
        return {**asdict(self), "total": self.total}

    def in_full(self) -> str:
        share = self.attention / max(1, self.all_pairs)
        return (
            f"{_scaled(self.total)}: attention {_scaled(self.attention)} ({share:.3%} of all "
            f"pairs'), projections {_scaled(self.projections)}, feed-forwards {_scaled(self.feed_forward)}"
        )


def _scaled(count: int) -> str:
    power = max(i for i in range(len(_PREFIXES)) if count >= 1000**i or i == 0)
    return f"{count / 1000**power:,.4g} {_PREFIXES[power]}FLOP"


def flops(
    layers: Layers,
    embed_dim: int = 512,
    num_heads: int = 8,
    *,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    hidden: int | None = None,
) -> Flops:
    r"""Operations of a forward pass through a transformer block for each graph.

    A product and its sum are two operations; exponentials, norms and biases are not counted, as
    ``torch.utils.flop_counter`` does not. A backward pass takes twice as many. What runs may take
    more (a backend of dense products also computes pairs that are no edges):
    :func:`graphattn.explain` says how long.

    .. math:: \underbrace{4 E H D}_{\text{attention}} + \underbrace{4 C D (T H + S H_{kv})}_{\text{projections}}
              + \underbrace{4 T C F}_{\text{feed-forward}}

    Args:
        layers: One graph, or a list of graphs, first layer first. A layer with graphs of heads
            counts the edges of each head.
        embed_dim: C.
        num_heads: H.
        num_kv_heads: Heads of keys and values, H by default.
        head_dim: D, ``embed_dim // num_heads`` by default.
        hidden: F, width of the feed-forward (one that is not gated), ``4 * embed_dim`` by default;
            0 for none.
    Raises:
        GraphError: If ``layers`` is no graph and no layers, or a size is no whole number in its
            range.
        OptionError: If heads do not share the width, or heads of the query those of keys.
    Source:
        Vaswani et al. 2017, table 1 (O(n^2 d) for self-attention on a full graph, here with its
        factors).
    Example:
        >>> from graphattn.graphs import causal, sliding_window
        >>> print(flops([causal(65_536)] * 2))
        9.621 TFLOP: attention 8.796 TFLOP (50.001% of all pairs'), projections 274.9 GFLOP, feed-forwards 549.8 GFLOP
        >>> print(flops([sliding_window(65_536, window=257, causal=True)] * 2))
        893.5 GFLOP: attention 68.85 GFLOP (0.391% of all pairs'), projections 274.9 GFLOP, feed-forwards 549.8 GFLOP
    """
    layers = in_a_row(layers)
    graphs = unions(layers)
    C = whole(embed_dim, "embed_dim", 1)
    H = whole(num_heads, "num_heads", 1)
    divides = head_dim is not None or C % H == 0
    if head_dim is None:
        head_dim = max(1, C // H)
    D = whole(head_dim, "head_dim", 1)
    if num_kv_heads is None:
        num_kv_heads = H
    H_kv = whole(num_kv_heads, "num_kv_heads", 1)
    if not divides or H % H_kv:
        raise OptionError(
            "embed_dim must be a multiple of num_heads (or head_dim be given), and that of "
            f"num_kv_heads; got {C}, {H} and {H_kv}"
        )
    if hidden is None:
        hidden = 4 * C
    F = whole(hidden, "hidden")
    read = 0
    for layer in layers:
        for _, graph, first, last in layer.groups(H):
            read += graph.num_edges * (last - first)
    targets, sources = (
        sum(getattr(graph, side) for graph in graphs) for side in ("num_targets", "num_sources")
    )
    return Flops(
        attention=4 * D * read,
        all_pairs=4 * D * H * sum(graph.num_targets * graph.num_sources for graph in graphs),
        projections=4 * C * D * (H * targets + H_kv * sources),
        feed_forward=4 * C * F * targets,
    )
