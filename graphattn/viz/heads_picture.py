"""Attention weights head by head, side by side: as matrices, as lines between two lists, or where the nodes live."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from .choice import checked_targets
from .edge_weights import by_edge, checked_head, edges_of_heads, weights_in
from .heads_views import VIEWS, Shown
from .places import place_of
from .places.pick import names_of
from .style import TEXT, WEIGHTS, counted, empty_figure, is_narrow, number, shades, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_HEADS = 12
_IN_A_ROW = 4


def plot_heads(
    weights: Any,
    view: str = "matrix",
    *,
    target: int | None = None,
    heads: int | Iterable[int] | None = None,
    tokens: Any = None,
    figure: Any = None,
    caption: bool = True,
    title: bool = True,
    **where: Any,
) -> "Figure":
    """The attention weights of several heads, a panel each, on one scale.

    Args:
        weights: The :class:`EdgeWeights`, or all that ``attention`` or a layer gives with ``return_weights=True``,
            without a batch.
        view: "matrix": weights as a picture, targets are rows, white where there is no edge. "lines": a list of targets
            beside a list of sources, a line for each edge, stronger with its weight. "place": one target's sources
            where they live, as :func:`plot_weights`.
        target: The one target whose weights are drawn; every target by default, in the views that can.
        heads: Which heads, by number; by default the first 12.
        tokens: A word per node; for two sets of nodes a pair, of the targets and of the sources.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Whether sentences below say what is drawn and what is left out.
        title: Whether a line above says what is drawn.
        **where: ``pos``, ``queries``, ``faces``, ``size``, ``image``, ``layout`` as :func:`plot`, for view "place".

    Returns:
        A matplotlib ``Figure``.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        OptionError: If there are no weights, no such view, or an argument that the view does not take.
        ShapeError: If ``alpha`` does not fit the graph, holds a batch, or has no such head.
        GraphIndexError: If there is no such target.

    Source: Vig (2019), "A Multiscale Visualization of Attention in the Transformer Model": the lines are its head view.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.randn(5, 3, 4)
        >>> weights = ga.attention(x, x, x, ga.graphs.causal(5), return_weights=True).weights
        >>> figure = plot_heads(weights, "lines", tokens="the cat sat down again".split())
        >>> [axes.get_title() for axes in figure.axes[:3]]
        ['head 0', 'head 1', 'head 2']
    """
    weights = weights_in(weights)
    if view not in VIEWS:
        raise OptionError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    if view == "place" and target is None:
        raise OptionError('view "place" shows one target; pass target=')
    if where and view != "place":
        raise OptionError(f'{", ".join(where)}: for view "place" alone, got view "{view}"')
    graph, alpha = weights.graph, by_edge(weights)
    chosen, left_out = _heads(heads, alpha.shape[1])
    targets = None if target is None else checked_targets(graph, target, "target", 1)
    place = place_of(graph, tokens=tokens, **where) if view == "place" else None
    own = edges_of_heads(weights)
    own = None if own is None else own[:, chosen]
    shown = Shown(graph, alpha[:, chosen].double().cpu().numpy(), names_of(graph, tokens), targets, place, own)
    rows, columns = -(-len(chosen) // _IN_A_ROW), min(len(chosen), _IN_A_ROW)
    draw, width, height = VIEWS[view]
    made = empty_figure(figure, max(4.2, width * columns + 1.3), height * rows + 0.9)
    scale = _scale(shown.largest)
    panels = []
    kind = "3d" if place is not None and place.is_3d else None
    for i, head in enumerate(chosen):
        ax = made.add_subplot(rows, columns, i + 1, projection=kind)
        ax.set_title(f"head {head}", fontsize=TEXT)
        edge = (i % columns == 0, i % columns == columns - 1 or i == len(chosen) - 1)  # of the row of panels
        sentences = draw(ax, shown, i, scale, edge)
        panels.append(ax)
    sentences += [] if place is None else place.remarks()
    if left_out:
        sentences.append(f"{counted(left_out, 'head')} more; choose them with heads=.")
    beside: dict[str, Any] = {"shrink": 0.8 if rows == 1 else 0.5, "pad": 0.02, "aspect": 25}
    below: dict[str, Any] = {"location": "bottom", "shrink": 0.7, "pad": 0.04, "aspect": 30}
    bar = made.colorbar(scale, ax=panels, **below if is_narrow(made) else beside)
    bar.set_label("attention weight", fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT - 1)
    bar.outline.set_visible(False)
    of = "" if targets is None else f", target {number(targets[0])}"
    titled(made, f"{graph.name}{of}: {counted(len(chosen), 'head')}" if title else None, sentences * caption)
    return made


def _heads(asked: int | Iterable[int] | None, count: int) -> tuple[list[int], int]:
    """The heads to draw, and how many more there are."""
    every = list(range(count))
    chosen = every[:_MOST_HEADS] if asked is None else [asked] if isinstance(asked, int) else list(asked)
    for head in chosen:
        checked_head(head, count)
    if not 0 < len(chosen) <= _MOST_HEADS:
        raise OptionError(f"heads must be 1 to {_MOST_HEADS} numbers below {count}, got {len(chosen)}")
    return chosen, count - len(chosen) if asked is None else 0


def _scale(largest: float) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(0.0, largest or 1.0), shades(*WEIGHTS).with_extremes(bad="white"))
