"""Graphs that are a function of the batch: its call on all tokens so far, and the graph of each row.

Keys and values in a cache are not computed again, so the rows of their tokens must stay as they
were: each step is compared with the graphs of the one before.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GraphError, OptionError
from ..graph import AttentionGraph, PerExample
from ..graph import runs as _runs
from ..graph.advice import no_graph
from .frame import Frame, Piece
from .given import NEW, is_graph, sized, takes_new
from .rows import Graph
from .ticket import Call, Generation
from .virtual import behind

Places = range | tuple[int, ...]


class Tokens(NamedTuple):
    """Numbers of tokens of a row: ``held`` in the cache, ``new`` ones, and ``sources`` so far."""

    held: int
    new: int
    sources: int

    @property
    def total(self) -> int:
        return self.held + self.new


class Row(NamedTuple):
    """The graph of a row between its tokens without padding.

    Args:
        graph: The graph; its targets are the new tokens alone if ``is_new``.
        targets: Positions in the row of the nodes that read, of all so far, ascending.
        sources: Positions of the nodes that are read.
        is_new: True if the graph has no rows of tokens in the cache.
    """

    graph: Graph
    targets: Places
    sources: Places
    is_new: bool


class Written(NamedTuple):
    """The graphs along which the tokens in a cache were computed.

    Args:
        rows: The graph of each row, between all tokens at that time.
        tokens: Their numbers.
        ids: int64 (B, N), the tokens; ``None`` if some are given as embeddings.
    """

    rows: list[Row]
    tokens: Tokens
    ids: Tensor | None

    def reordered(self, order: Tensor) -> "Written":
        """That of other rows, as a beam search selects them."""
        ids = self.ids
        if ids is not None:
            ids = ids[order.to(ids.device)]
        return self._replace(rows=[self.rows[row] for row in order.tolist()], ids=ids)


def graphs_of_batch(
    slot: Any,
    frame: Frame,
    call: Call,
    virtual: tuple[int, int],
    batch: int,
    generation: Generation,
) -> tuple[Frame, list[Graph]]:
    """The graphs that a function of the batch returns; its nodes are positions of a row, padding
    included.

    Args:
        slot: The patched module.
        frame: The rows of the call.
        call: The call of the model, with the inputs of the function.
        virtual: Numbers of virtual tokens among the targets and the sources.
        batch: B.
        generation: The run of ``generate``.

    Returns:
        The frame, and the graph of each of its pieces between tokens without padding.

    Raises:
        OptionError: If an input of the function is missing.
        GraphError: If the graphs do not fit, or change the sources of a token in the cache.
    """
    missing = [name for name in slot.inputs if name not in call.inputs]
    if missing:
        raise OptionError(
            f"the graph is a function of {', '.join(slot.inputs)}; pass {', '.join(missing)} by name"
        )
    crosses = slot.place.role == "cross"
    if frame.past > virtual[0] and not call.has_all:
        if not crosses:
            raise GraphError(
                "a function of the batch gets only new tokens with a cache; pass use_cache=False, "
                "or call generate, which has all tokens so far"
            )
        frame = _from_start(frame)
    tokens = _tokens(frame, virtual, crosses=crosses)
    each = _each(_returned(slot, call, tokens.new), batch)
    may_be_new = takes_new(slot.given)
    fitted = {id(graph): _fitted(graph, tokens, crosses, may_be_new) for graph in each}
    pieces = list(frame.pieces)
    if frame.alike:
        pieces = [pieces[0]._replace(row=row) for row in range(batch)]
    rows: list[Row] = []
    cut: dict[Any, Row] = {}
    for piece in pieces:
        graph = fitted[id(each[piece.row])]
        places = _places(piece, frame, tokens, virtual, crosses=crosses)
        key = (id(graph), places)
        if key not in cut:
            cut[key] = _without_padding(graph, *places, tokens)
        rows.append(cut[key])
    if call.has_all and generation.written is not None:
        _check_drafts(rows, tokens, generation.prompt, crosses=crosses)
        key = (id(slot.given), slot.place.stack)
        _check_written(key, rows, tokens, generation.written, generation.ids)
    is_one = frame.alike and all(row is rows[0] for row in rows)
    if is_one:
        pieces = pieces[:1]
        rows = rows[:1]
    graphs = []
    for number, (piece, row) in enumerate(zip(pieces, rows, strict=True)):
        before = virtual
        if row.is_new:
            pieces[number] = _of_new_rows(piece)
            before = (0, virtual[1])
        graphs.append(behind(row.graph, *before, is_causal=slot.is_causal))
    return replace(frame, pieces=tuple(pieces), alike=is_one, kept={}), graphs


def _from_start(frame: Frame) -> Frame:
    """The frame of a call whose function has the new targets alone, as of all."""
    pieces = tuple(piece._replace(targets=piece.targets._replace(node=0)) for piece in frame.pieces)
    return replace(frame, pieces=pieces, past=0, kept={})


def _tokens(frame: Frame, virtual: tuple[int, int], *, crosses: bool) -> Tokens:
    held = max(frame.past - virtual[0], 0)
    total = frame.past + frame.targets - virtual[0]
    if crosses:
        return Tokens(held, total - held, frame.sources - virtual[1])
    return Tokens(held, total - held, total)


def _returned(slot: Any, call: Call, new: int) -> Any:
    """What the function returns, called once for all layers."""
    function = slot.given
    if id(function) not in call.graphs:
        inputs = {name: call.inputs[name] for name in slot.inputs}
        if takes_new(function):
            inputs[NEW] = new
        call.graphs[id(function)] = function(**inputs)
    return call.graphs[id(function)]


def _each(graphs: Any, batch: int) -> list[Any]:
    """The graph of each example."""
    if is_graph(graphs):
        return [graphs] * batch
    if isinstance(graphs, PerExample):
        each: list[Any] = list(graphs.graphs)
    elif isinstance(graphs, Iterable) and not hasattr(graphs, "shape"):
        each = list(graphs)
    else:
        each = [graphs]
    for graph in each:
        if not is_graph(graph):
            raise no_graph(graph, "the function given to ga.patch must return a graph")
    if len(each) != batch:
        raise GraphError(
            f"the function must return a graph, or one for each of {batch} examples; got "
            f"{len(each)}"
        )
    return each


def _fitted(given: Any, tokens: Tokens, crosses: bool, may_be_new: bool) -> Graph:
    """A graph of the size of a row, or with a row for each new token."""
    targets = None
    if crosses:
        targets = tokens.total
    if given.is_open:
        return sized(given, tokens.sources, targets)
    if may_be_new and _has_new_rows(given, tokens):
        graph: Graph = given
        return graph
    if given.num_targets < tokens.total or given.num_sources < tokens.sources:
        rows = f"{tokens.total}"
        if may_be_new and tokens.held:
            rows = f"{tokens.total}, or the {tokens.new} new,"
        raise GraphError(
            f"the function of the batch must return graphs of {rows} targets and {tokens.sources} "
            f"sources, all tokens so far with padding; got {given!r}"
        )
    return sized(given, tokens.sources, targets)


def _has_new_rows(graph: Any, tokens: Tokens) -> bool:
    """True if a graph has the rows of new tokens alone."""
    sizes = (graph.num_targets, graph.num_sources)
    return tokens.held > 0 and sizes == (tokens.new, tokens.sources)


def _places(
    piece: Piece, frame: Frame, tokens: Tokens, virtual: tuple[int, int], *, crosses: bool
) -> tuple[Places, Places]:
    """Positions of the targets and the sources of a row so far, without padding."""
    read = piece.sources.places
    if isinstance(read, range):
        start = frame.dropped + read.start - piece.sources.node
        sources: Places = range(start, frame.dropped + read.stop)
    elif crosses or frame.dropped:
        raise _scattered()
    else:
        sources = read
    sources = _behind(sources, virtual[1])
    if not crosses:
        return sources, sources
    written = piece.targets.places
    if not isinstance(written, range):
        raise _scattered()
    start = frame.past + written.start - piece.targets.node
    return range(start, tokens.total), sources


def _behind(places: Places, virtual: int) -> Places:
    """Positions in the text, behind virtual tokens."""
    if isinstance(places, range):
        return range(max(places.start - virtual, 0), places.stop - virtual)
    return tuple(place - virtual for place in places[virtual:])


def _scattered() -> GraphError:
    return GraphError(
        "a function of the batch needs contiguous tokens in cross-attention, and in a cache that "
        "drops tokens, but some between others are masked"
    )


def _without_padding(graph: Graph, targets: Places, sources: Places, tokens: Tokens) -> Row:
    """The graph of a row between its tokens."""
    is_new = _has_new_rows(graph, tokens)
    if not graph.is_fixed:
        if sources[:1] not in (range(1), range(0)):
            raise GraphError(
                f"{graph!r} chooses edges by content, also among the padding that a function of "
                "the batch counts; pass the pattern itself, which each row has without padding"
            )
        return Row(graph, targets, sources, is_new)
    rows = targets
    if is_new:
        rows = range(tokens.new)
    sizes = (range(graph.num_targets), range(graph.num_sources))
    if (rows, sources) == sizes:
        return Row(graph, targets, sources, is_new)
    cut = graph.of_each(lambda one: one.subgraph(targets=_index(rows), sources=_index(sources)))
    return Row(cut, targets, sources, is_new)


def _index(places: Places) -> range | Tensor:
    if isinstance(places, range):
        return places
    return torch.tensor(places)


def _of_new_rows(piece: Piece) -> Piece:
    """The piece with nodes of targets counted from the first new token of its row."""
    first = 0
    if piece.targets.size:
        first = piece.targets.places[0]
    return piece._replace(targets=piece.targets._replace(node=first))


# --- tokens that were written before


def _check_drafts(rows: list[Row], tokens: Tokens, prompt: int | None, *, crosses: bool) -> None:
    """Refuse edges from drafts to tokens before them, as drafts may be rejected."""
    if crosses or prompt is None or tokens.new == 1 or tokens.total <= prompt:
        return
    for example, row in enumerate(rows):
        reader = torch.tensor(row.targets[bisect_left(row.targets, tokens.held) :])
        place = torch.arange(len(row.targets) - len(reader), len(row.targets))
        if row.is_new:
            place = reader - tokens.held
        written = torch.tensor(row.sources)
        end = torch.bucketize(reader.clamp(min=prompt - 1), written, right=True)
        for graph in dict.fromkeys(_heads(row.graph)):
            runs = _runs.nonempty(graph.edges.rows(place))
            last = runs.hi.clamp(max=len(written))
            ahead = (last > end[runs.row]).nonzero().flatten()
            if ahead.numel():
                first = ahead[0]
                raise GraphError(
                    f"token {int(reader[runs.row[first]])} of example {example} reads token "
                    f"{int(written[last[first] - 1])}, a draft that may be rejected; remove edges "
                    "from later sources, as graph & ga.graphs.causal(...) does"
                )


def _check_written(
    key: Any,
    rows: list[Row],
    tokens: Tokens,
    written: dict[Any, Written],
    ids: Tensor | None,
) -> None:
    """Compare the rows of the tokens in a cache with those along which they were computed.

    Raises:
        GraphError: If one has changed.
    """
    if any(row.is_new for row in rows):
        return
    before = written.get(key)
    if before is not None and len(before.rows) == len(rows):
        end = min(before.tokens.total, tokens.held)
        same = _starts_alike(before.ids, ids, end)
        compared: set[tuple[int, int]] = set()
        for example, (old, new) in enumerate(zip(before.rows, rows, strict=True)):
            pair = (id(old), id(new))
            if pair not in compared and (same is None or bool(same[example])):
                compared.add(pair)
                _compare(old, new, end, example)
    written[key] = Written(rows, tokens, ids)


def _starts_alike(before: Tensor | None, now: Tensor | None, end: int) -> Tensor | None:
    """bool (B,): the rows that start with the tokens they had; ``None`` if these are unknown."""
    if before is None or now is None:
        return None
    return (before[:, :end] == now[:, :end].to(before.device)).all(1).cpu()


def _compare(old: Row, new: Row, end: int, example: int) -> None:
    """Refuse other sources of the tokens of a row before the position ``end``."""
    number = bisect_left(old.targets, end)
    if old.targets[:number] != new.targets[:number]:
        return  # another padding: they are other tokens
    before = _heads(old.graph)
    now = _heads(new.graph)
    heads = max(len(before), len(now))
    pairs = {
        (before[head * len(before) // heads], now[head * len(now) // heads])
        for head in range(heads)
    }
    limits = (len(old.sources), len(new.sources))
    for was, is_now in pairs:
        if was.edges is is_now.edges or _are_equal(was, is_now, number, limits):
            continue
        raise _changed(was, is_now, number, limits, new, example)


def _heads(graph: Graph) -> tuple[AttentionGraph, ...]:
    if not graph.is_fixed:
        return (graph.union(),)
    return graph.of_heads


def _are_equal(
    was: AttentionGraph, is_now: AttentionGraph, number: int, limits: tuple[int, int]
) -> bool:
    if was.has_repeated_edges or is_now.has_repeated_edges:
        width = max(limits)
        before = _keys(was, number, limits[0], width)
        return torch.equal(before, _keys(is_now, number, limits[1], width))
    earlier = _rows(was, number, limits[0])
    later = _rows(is_now, number, limits[1])
    return all(torch.equal(a, b) for a, b in zip(earlier, later, strict=True))


def _rows(graph: AttentionGraph, number: int, limit: int) -> _runs.Runs:
    """The first rows among the first sources, in the fewest runs."""
    row, lo, hi = graph.edges.rows(torch.arange(number))
    return _runs.canonical(_runs.Runs(row, lo, hi.clamp(max=limit)))


def _keys(graph: AttentionGraph, number: int, limit: int, width: int) -> Tensor:
    """``target * width + source`` of the edges in the first rows, from the first sources, sorted."""
    if graph.has_repeated_edges:
        source, target = graph.edge_index.cpu()
    else:
        target, source = _runs.expand(graph.edges.rows(torch.arange(number)))
    here = (target < number) & (source < limit)
    return torch.sort(target[here] * width + source[here]).values


def _changed(
    was: AttentionGraph,
    is_now: AttentionGraph,
    number: int,
    limits: tuple[int, int],
    row: Row,
    example: int,
) -> GraphError:
    """The error for a token whose sources have changed."""
    width = max(limits)
    before = _keys(was, number, limits[0], width)
    now = _keys(is_now, number, limits[1], width)
    common = min(len(before), len(now))
    different = (before[:common] != now[:common]).nonzero().flatten()
    place = common
    if different.numel():
        place = int(different[0])
    target = int(torch.cat((before[place:], now[place:])).amin()) // width
    old = Counter(
        row.sources[node] for node in (before[before // width == target] % width).tolist()
    )
    new = Counter(row.sources[node] for node in (now[now // width == target] % width).tolist())
    return GraphError(
        f"the function of the batch changed the sources of token {row.targets[target]} of example "
        f"{example}, which is in the cache: added {_listed(new - old)}, removed "
        f"{_listed(old - new)}; keep the rows of earlier tokens, or pass use_cache=False"
    )


def _listed(sources: "Counter[int]") -> str:
    if not sources:
        return "none"
    shown = ", ".join(map(str, sorted(sources)[:6]))
    if len(sources) > 6:
        return f"{shown}, ..."
    return shown
