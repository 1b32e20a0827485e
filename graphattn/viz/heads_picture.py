"""Attention weights head by head, side by side: as matrices, as lines between two lists, or where the nodes live."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..arguments import check_flags, one_of, several, whole
from ..errors import OptionError
from ..graph.graph import AttentionGraph
from .choice import checked_targets, spread_targets
from .edge_weights import by_edge, checked_head, edges_of_heads, weights_in
from .heads_views import VIEWS, Shown
from .layouts import Layout, layout_of
from .layouts.pick import names_of
from .style import TEXT, counted, empty_figure, is_narrow, number, titled, weight_bar, weight_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_HEADS = 12
_IN_A_ROW = 4
_SENTENCES = {"all": (0, 0), "aa": (1, 1), "ab": (1, 2), "ba": (2, 1), "bb": (2, 2)}  # of targets, of sources


def plot_heads(
    weights: Any,
    view: str | None = None,
    *,
    target: int | None = None,
    heads: int | Iterable[int] | None = None,
    tokens: Any = None,
    sentence_b_start: int | None = None,
    sentences: str = "all",
    relative: bool = False,
    pos: Any = None,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    image: Any = None,
    layout: str | None = None,
    figure: Any = None,
    caption: bool = True,
    title: bool = True,
) -> "Figure":
    """The attention weights of several heads, a panel each, on one scale.

    Args:
        weights: The :class:`EdgeWeights`, or all that ``attention`` or a layer gives with ``return_weights=True``,
            without a batch; or a tensor (H, T, S), as ``outputs.attentions[layer][0]`` of transformers.
        view: "matrix": weights as a picture, targets are rows, white where there is no edge. "lines": a list of targets
            beside a list of sources, a line for each edge, more opaque and wider with its weight. "place": one target's
            sources where they live, as :func:`plot_weights`. By default "place" where ``pos`` or another argument of a
            place is given, else "matrix".
        target: The one target whose weights are drawn; every target by default, in view "place" one in its midst.
        heads: Which heads, by number; by default the first 12.
        tokens: A word per node; for two sets of nodes a pair, of the targets and of the sources.
        sentence_b_start: The first token of a second sentence of the same sequence: the two are drawn apart.
        sentences: With ``sentence_b_start``, "aa", "ab", "ba" or "bb" shows what the targets of one sentence read of
            one sentence, the targets' first; "all" by default.
        relative: Whether the largest weight drawn is the darkest; by default 1 is, so that pictures compare.
        pos, queries, faces, size, image, layout: As :func:`plot`, for view "place".
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Whether sentences below say what is drawn and what is left out.
        title: Whether a line above says what is drawn.

    Returns:
        A matplotlib ``Figure``.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        OptionError: If there are no weights, no such view, or an argument that the view does not take.
        ShapeError: If ``alpha`` does not fit the graph, holds a batch, or has no such head; if a tensor is no
            (H, T, S).
        GraphIndexError: If there is no such target.

    Source: Vig (2019), "A Multiscale Visualization of Attention in the Transformer Model": the lines, and the two
    sentences, are its head view.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.randn(5, 3, 4)
        >>> weights = ga.attention(x, x, x, ga.graphs.causal(5), return_weights=True).weights
        >>> figure = plot_heads(weights, "lines", tokens="the cat sat down again".split())
        >>> [axes.get_title() for axes in figure.axes[:3]]
        ['head 0', 'head 1', 'head 2']
    """
    check_flags(relative=relative, caption=caption, title=title)
    weights = weights_in(weights)
    given = {"pos": pos, "queries": queries, "faces": faces, "size": size, "image": image, "layout": layout}
    where = {name: value for name, value in given.items() if value is not None}
    view = _view(view, where)
    graph, alpha = weights.graph, by_edge(weights)
    chosen, left_out = _heads(heads, alpha.shape[1])
    place = layout_of(graph, tokens=tokens, **where) if view == "place" else None
    target = _middle(graph, place) if target is None and place is not None else target
    targets = None if target is None else checked_targets(graph, target, "target", 1)
    own = edges_of_heads(weights)
    shown = Shown(
        graph,
        alpha[:, chosen].double().cpu().numpy(),
        names_of(graph, tokens),
        targets,
        place,
        None if own is None else own[:, chosen],
        *_parts(graph, view, sentence_b_start, sentences, targets),
        sentence_b_start,
    )
    rows, columns = -(-len(chosen) // _IN_A_ROW), min(len(chosen), _IN_A_ROW)
    draw, colours, width, height = VIEWS[view]
    made = empty_figure(figure, max(4.2, width * columns + 1.3), height * rows + 0.9)
    scale, on_scale = weight_scale(shown.values, relative, colours)
    panels = []
    kind = "3d" if place is not None and place.is_3d else None
    remarks: list[str] = []
    for i, head in enumerate(chosen):
        ax = made.add_subplot(rows, columns, i + 1, projection=kind)
        ax.set_title(f"head {head}", fontsize=TEXT)
        edge = (i % columns == 0, i % columns == columns - 1 or i == len(chosen) - 1)  # of the row of panels
        remarks += draw(ax, shown, i, scale, edge)
        panels.append(ax)
    remarks += on_scale + ([] if place is None else place.remarks())
    if left_out:
        remarks.append(f"{counted(left_out, 'head')} more; choose them with heads=.")
    beside: dict[str, Any] = {"shrink": 0.8 if rows == 1 else 0.5, "pad": 0.02, "aspect": 25}
    below: dict[str, Any] = {"location": "bottom", "shrink": 0.7, "pad": 0.04, "aspect": 30}
    weight_bar(made, scale, panels, "attention weight", **below if is_narrow(made) else beside)
    of = "" if targets is None else f", target {number(targets[0])}"
    remarks = list(dict.fromkeys(remarks))
    titled(made, f"{graph.name}{of}: {counted(len(chosen), 'head')}" if title else None, remarks * caption)
    return made


def _view(view: Any, where: dict[str, Any]) -> str:
    """The view given, or the one that the other arguments are for."""
    if view is None:
        return "place" if where else "matrix"
    one_of(view, "view", VIEWS)
    if where and view != "place":
        raise OptionError(f'{", ".join(where)}: for view "place" alone, got view "{view}"')
    return view


def _middle(graph: AttentionGraph, place: Layout) -> int:
    """A target that reads something, well inside the picture."""
    if graph.num_targets == 0:
        raise OptionError('view "place" shows what one target reads, and the graph has no targets')
    return next(iter(spread_targets(graph, place.target_at)), 0)


def _parts(
    graph: AttentionGraph, view: str, b_start: Any, sentences: Any, targets: list[int] | None
) -> tuple[range, range]:
    """The targets and the sources that are shown."""
    every = range(graph.num_targets), range(graph.num_sources)
    one_of(sentences, "sentences", _SENTENCES)
    if b_start is None:
        if sentences != "all":
            raise OptionError(f'sentences="{sentences}" needs sentence_b_start, the first token of the second one')
        return every
    if view == "place" or not graph.is_square:
        which = 'views "matrix" and "lines"' if view == "place" else "graphs whose sources are their targets"
        raise OptionError(f"sentence_b_start is for {which}; leave it out")
    start = whole(b_start, "sentence_b_start", 1)
    if start >= graph.num_nodes:
        raise OptionError(f"sentence_b_start must be a token in [1, {graph.num_nodes - 1}], got {start}")
    either = (range(graph.num_nodes), range(start), range(start, graph.num_nodes))
    rows, columns = (either[which] for which in _SENTENCES[sentences])
    if targets is not None and targets[0] not in rows:
        raise OptionError(f'target {targets[0]} is not in the sentence that reads, with sentences="{sentences}"')
    return rows, columns


def _numbers(heads_given: Any, count: int) -> list[int]:
    heads = [heads_given] if getattr(heads_given, "ndim", 1) == 0 or isinstance(heads_given, int) else heads_given
    expected = f"must be a number below {count}, or a list of them"
    return [whole(head, "heads") for head in several(heads, "heads", expected)]


def _heads(heads_given: int | Iterable[int] | None, count: int) -> tuple[list[int], int]:
    """The heads to draw, and how many more there are."""
    every = list(range(count))
    chosen = every[:_MOST_HEADS] if heads_given is None else _numbers(heads_given, count)
    for head in chosen:
        checked_head(head, count)
    if not 0 < len(chosen) <= _MOST_HEADS:
        raise OptionError(f"heads must be 1 to {_MOST_HEADS} numbers below {count}, got {len(chosen)}")
    return chosen, count - len(chosen) if heads_given is None else 0
