"""Graphs that are a function of the batch: its call on all tokens so far, and the graph of each row."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError, OptionError
from ..graph import PerExample
from ..graph.advice import no_graph
from .graph_option import NEW, is_graph, sized, takes_new
from .ticket import Generation, ModelCall
from .tokens.frame import Frame, SequencePiece
from .tokens.rows import Graph
from .tokens.virtual import behind
from .tokens.written import Places, TokenRow, Tokens, check_drafts, keep_written


def graphs_of_batch(
    slot: Any,
    frame: Frame,
    call: ModelCall,
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
    crosses = slot.place.role == "cross"
    if crosses and not call.has_all and frame.past > virtual[0]:
        # inputs of cross-attention are of the new targets alone
        new = (piece._replace(targets=piece.targets._replace(node=0)) for piece in frame.pieces)
        frame = replace(frame, pieces=tuple(new), past=0, memo={})
    cached = max(frame.past - virtual[0], 0)
    total = frame.past + frame.targets - virtual[0]
    if crosses:
        tokens = Tokens(cached, total - cached, frame.sources - virtual[1])
    else:
        tokens = Tokens(cached, total - cached, total)
    examples = _of_examples(_returned(slot, call, tokens.new), batch)
    may_be_new = takes_new(slot.graph) or not call.has_all
    if not call.has_all:
        _check_whole(examples, tokens, crosses=crosses)
    fitted = {
        id(graph): _fitted(graph, tokens, crosses, may_be_new=may_be_new) for graph in examples
    }
    pieces = list(frame.pieces)
    if frame.alike:
        pieces = [pieces[0]._replace(row=row) for row in range(batch)]
    rows = []
    cut: dict[Any, TokenRow] = {}
    for piece in pieces:
        graph = fitted[id(examples[piece.row])]
        places = _places(piece, frame, tokens, virtual, crosses=crosses)
        key = (id(graph), places)
        if key not in cut:
            cut[key] = _without_padding(graph, *places, tokens)
        rows.append(cut[key])
    if call.has_all and generation.written is not None:
        check_drafts(rows, tokens, generation.prompt, crosses=crosses)
        key = (id(slot.graph), slot.place.stack)
        keep_written(key, rows, tokens, generation.written, generation.ids)
    is_one = frame.alike and all(row is rows[0] for row in rows)
    if is_one:
        pieces = pieces[:1]
        rows = rows[:1]
    graphs = []
    for number, (piece, row) in enumerate(zip(pieces, rows, strict=True)):
        before = virtual
        if row.is_new:
            pieces[number] = piece._replace(targets=piece.targets._replace(node=0))
            before = (0, virtual[1])
        graphs.append(behind(row.graph, *before, is_causal=slot.is_causal))
    return replace(frame, pieces=tuple(pieces), alike=is_one, memo={}), graphs


def _returned(slot: Any, call: ModelCall, new: int) -> Any:
    """The result of the function of the batch, which is called once for all layers."""
    function = slot.graph
    if isinstance(function, PerExample):
        return function
    missing = [name for name in slot.inputs if name not in call.inputs]
    if missing:
        raise OptionError(
            f"the graph is a function of {', '.join(slot.inputs)}; pass {', '.join(missing)} by name"
        )
    if id(function) not in call.graphs:
        inputs = {name: call.inputs[name] for name in slot.inputs}
        if takes_new(function):
            inputs[NEW] = new
        call.graphs[id(function)] = function(**inputs)
    return call.graphs[id(function)]


def _of_examples(graphs: Any, batch: int) -> list[Any]:
    """The graph of each example."""
    if is_graph(graphs):
        return [graphs] * batch
    examples: list[Any] = [graphs]
    if isinstance(graphs, Iterable) and not hasattr(graphs, "shape"):
        examples = list(graphs)
    for graph in examples:
        if not is_graph(graph):
            raise no_graph(graph, "the function given to ga.patch must return a graph")
    if len(examples) != batch:
        raise GraphError(
            f"the function must return a graph, or one for each of {batch} examples; got "
            f"{len(examples)}"
        )
    return examples


def _fitted(value: Any, tokens: Tokens, crosses: bool, *, may_be_new: bool) -> Graph:
    """A graph of the size of a row, or with a row for each new token."""
    targets = None
    if crosses:
        targets = tokens.total
    if value.is_open:
        return sized(value, tokens.sources, targets)
    if may_be_new and _has_new_rows(value, tokens):
        graph: Graph = value
        return graph
    if value.num_targets < tokens.total or value.num_sources < tokens.sources:
        raise GraphError(
            f"the function of the batch must return graphs of {tokens.total} targets and "
            f"{tokens.sources} sources, the tokens so far with padding; or of {tokens.new} targets, "
            f"the new ones, if it takes new or generate does not call the model; got {value!r}"
        )
    return sized(value, tokens.sources, targets)


def _check_whole(graphs: list[Any], tokens: Tokens, *, crosses: bool) -> None:
    """Refuse a graph of more tokens than the row has, such as that of another batch."""
    for graph in graphs:
        if graph.is_open or crosses:
            continue
        if graph.num_targets > tokens.total and graph.num_sources > tokens.sources:
            raise GraphError(
                f"the function of the batch must return graphs of the {tokens.total} tokens of a "
                f"row, got {graph!r}; the first nodes of a larger graph are "
                f"graph.subgraph(range({tokens.total}))"
            )


def _has_new_rows(graph: Any, tokens: Tokens) -> bool:
    """True if a graph has the rows of new tokens alone."""
    sizes = (graph.num_targets, graph.num_sources)
    return tokens.held > 0 and sizes == (tokens.new, tokens.sources)


def _places(
    piece: SequencePiece, frame: Frame, tokens: Tokens, virtual: tuple[int, int], *, crosses: bool
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
    sources = _behind(sources, virtual[1])  # in the text, behind virtual tokens
    if not crosses:
        return sources, sources
    written = piece.targets.places
    if not isinstance(written, range):
        raise _scattered()
    start = frame.past + written.start - piece.targets.node
    return range(start, tokens.total), sources


def _behind(places: Places, first: int) -> Places:
    """Positions counted from ``first`` on."""
    if isinstance(places, range):
        return range(max(places.start - first, 0), max(places.stop - first, 0))
    return tuple(place - first for place in places if place >= first)


def _scattered() -> GraphError:
    return GraphError(
        "a function of the batch needs contiguous tokens in cross-attention, and in a cache that "
        "drops tokens, but some between others are masked"
    )


def _without_padding(graph: Graph, targets: Places, sources: Places, tokens: Tokens) -> TokenRow:
    """The graph of a row between its tokens."""
    is_new = _has_new_rows(graph, tokens)
    if not graph._is_fixed:
        if sources[:1] not in (range(1), range(0)):
            raise GraphError(
                f"{graph!r} chooses edges by content, also among the padding that a function of "
                "the batch counts; pass the pattern itself, which each row has without padding"
            )
        return TokenRow(graph, targets, sources, is_new)
    rows = targets
    if is_new:
        rows = _behind(targets, tokens.held)
    sizes = (range(graph.num_targets), range(graph.num_sources))
    if (rows, sources) == sizes:
        return TokenRow(graph, targets, sources, is_new)
    cut = graph._map_graphs(lambda one: one.subgraph(targets=_index(rows), sources=_index(sources)))
    return TokenRow(cut, targets, sources, is_new)


def _index(places: Places) -> range | Tensor:
    if isinstance(places, range):
        return places
    return torch.tensor(places)
