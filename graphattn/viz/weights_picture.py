"""Attention weights of one target, where its sources live."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import check_flags
from .choice import MOST_SOURCES, all_edges, checked_targets
from .edge_weights import weights_in, weights_into
from .layouts import layout_of
from .layouts.network import Network
from .layouts.pick import names_of
from .style import counted, empty_figure, number, titled, weight_bar, weight_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_weights(
    weights: Any,
    target: int,
    pos: Any = None,
    *,
    head: int | None = None,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    image: Any = None,
    tokens: Any = None,
    layout: str | None = None,
    relative: bool = False,
    figure: Any = None,
    caption: bool = True,
    title: bool = True,
) -> "Figure":
    """The attention weights of one target, coloured on the sources that it reads.

    Args:
        weights: The :class:`EdgeWeights`, or all that ``attention`` or a layer gives with ``return_weights=True``.
            Of a batch, one element: ``EdgeWeights(weights.graph, weights.alpha[0])``. Or a tensor (H, T, S), as
            ``outputs.attentions[layer][0]`` of transformers.
        target: The node that reads.
        pos, queries, faces, size, image, tokens, layout: As :func:`plot`. Points are shown close up.
        head: One head, or ``None`` for the mean over heads.
        relative: Whether the largest weight drawn is the darkest; by default 1 is, so that pictures compare.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Whether sentences below say what is drawn and what is left out.
        title: Whether a line above says what is drawn.

    Returns:
        A matplotlib ``Figure``.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        OptionError: If there are no weights in ``weights``.
        ShapeError: If ``alpha`` does not fit the graph, holds a batch, or has no such head; if a tensor is no
            (H, T, S).
        GraphIndexError: If there is no such target.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.randn(2, 5, 1, 3)  # a batch of two
        >>> weights = ga.attention(x, x, x, ga.graphs.causal(5), return_weights=True).weights
        >>> figure = plot_weights(ga.EdgeWeights(weights.graph, weights.alpha[1]), target=4)
        >>> figure.get_suptitle()
        'target 4 reads 5 sources'
    """
    check_flags(relative=relative, caption=caption, title=title)
    weights = weights_in(weights)
    graph = weights.graph
    (target,) = checked_targets(graph, target)
    sources, alpha, what = weights_into(weights, target, head)
    count = len(sources)
    shown = empty_figure(figure, 6.4, 4.8)
    where: dict[str, Any] = {"queries": queries, "faces": faces, "size": size, "image": image}
    place = layout_of(graph, pos, tokens=tokens, layout=layout, **where)
    ax = shown.add_subplot(projection="3d" if place.is_3d else None)
    near = place.close_up(target, sources, 0.7)
    place.face(target)
    sentences = [place.reads] * bool(place.reads) + place.ground(ax, near)
    every = all_edges(graph)
    if isinstance(place, Network) and every is not None:
        place.edges(ax, *every)
    if place.draws_all_edges and count > MOST_SOURCES:
        heaviest = np.sort(np.argsort(-alpha, kind="stable")[:MOST_SOURCES])
        share = alpha[heaviest].sum() / alpha.sum()
        sentences.append(f"Only the {MOST_SOURCES} heaviest of {number(count)} are drawn ({share:.1%} of the sum).")
        sources, alpha = sources[heaviest], alpha[heaviest]
    scale, remarks = weight_scale(alpha, relative)
    order = np.argsort(alpha, kind="stable")  # the heaviest on top
    place.neighbourhood(
        ax, target, sources[order], scale.to_rgba(alpha[order]), "*", np.clip(scale.norm(alpha[order]), 0, 1)
    )
    weight_bar(shown, scale, ax, ", ".join(filter(None, ("attention weight", what))), shrink=0.75, pad=0.03)
    sentences += remarks + place.remarks()
    names = names_of(graph, tokens)[0]
    named = f"target {number(target)}" if names is None else f"“{names[target]}” (target {number(target)})"
    heaviest_first = sources[np.argsort(-alpha, kind="stable")]
    titled(shown, f"{named} reads {counted(count, 'source')}" if title else None, sentences * caption)
    place.label(ax, target, heaviest_first)
    return shown
