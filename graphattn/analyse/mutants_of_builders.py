"""The table of mistakes that people make about a builder: what they write in its place, the commonest first."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import GraphAttnError
from ..graph import AttentionGraph
from ..graph.expression import SIGNS, Expression
from ..graph.simple import band_of
from ..graphs import (
    ancestors,
    asymmetric_window,
    bidirectional_segments,
    block_causal,
    block_local,
    causal,
    composite,
    cross_documents,
    documents,
    fixed,
    full,
    ranked,
    siblings,
    sinks,
    sliding_window,
    strided,
    tree,
)
from .mutants import REMOTE, Mutant, Node, parameters, quoted
from .mutants_of_grids import of_grid

_MOVED = ((0, 1), (0, -1), (-1, 0), (1, 0), (1, 1), (-1, -1))
_BLOCKS = 17  # all below, and powers of two


class Row(NamedTuple):
    """A mistake about calls of one builder.

    Args:
        rank: How rare it is, as of a :class:`Mutant`.
        words: What is wrong; ``{window}`` is the argument of that name.
        change: From the arguments by name, and ``n``, the first of them, to the graph that is made instead; ``None``
            where these arguments leave nothing to mistake.
    """

    rank: int
    words: str
    change: Callable[[SimpleNamespace], AttentionGraph | None]


def of_builder(part: Node, graph: AttentionGraph) -> Iterator[Mutant]:
    """Every row of the table about a call, and what is wrong about bands and grids."""
    if isinstance(part, Expression) and part.function in _TABLE:
        takes = parameters(part)
        given = dict(zip(takes, part.args, strict=False)) | dict(part.options)
        values = {name: given.get(name, takes[name].default) for name in takes}
        on_host = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in values.items()}
        c = SimpleNamespace(**on_host, n=graph.num_targets)
        for rank, words, change in _TABLE[part.function]:
            made = _made(change, c)
            if made is not None:
                yield Mutant(f"{words.format(**values)}, in {quoted(part)}", part, made.to(graph.device), rank=rank)
    if isinstance(part, Expression) and part.function not in SIGNS:
        for words, changed in of_grid(part, graph):
            yield Mutant(f"{words}, in {quoted(part)}", part, changed)
    for words, node in _bands(graph):
        yield Mutant(f"{words}, in {quoted(part)}", part, node, counted=True, rank=REMOTE)


def _made(change: Callable[[SimpleNamespace], AttentionGraph | None], c: SimpleNamespace) -> AttentionGraph | None:
    try:
        return change(c)
    except GraphAttnError:  # the builder has no such graph
        return None


def _bands(graph: AttentionGraph) -> Iterator[tuple[str, Node]]:
    """A band with its ends moved; an end in the corner of the mask is open, and stays."""
    band = band_of(graph)
    if band is None:
        return
    (lo, hi), T, S = band, graph.num_targets, graph.num_sources
    for lo_by, hi_by in _MOVED:
        low, high = (lo if lo <= 1 - S else lo + lo_by), (hi if hi >= T - 1 else hi + hi_by)
        if low <= high:
            yield f"{_reach(low, high, T, S)} where {_reach(lo, hi, T, S)} was meant", _band(T, S, low, high)
    if T == S and lo == 0 and hi >= T - 1:
        for block in sorted({*range(2, min(T, _BLOCKS)), *(1 << k for k in range(1, T.bit_length()))}):
            text = f"a target reads all of its block of {block} tokens: block_causal"
            yield text, Expression("block_causal", (T, block))


def _band(T: int, S: int, lo: int, hi: int) -> AttentionGraph:
    """``lo <= t - s <= hi``."""

    def upto(left: int, right: int) -> AttentionGraph:
        return asymmetric_window(T, left, right, num_sources=S, align="start")

    if lo <= 0 <= hi:
        return upto(hi, -lo)
    return upto(hi, 0) - upto(lo - 1, 0) if lo > 0 else upto(0, -lo) - upto(0, -hi - 1)


def _reach(lo: int, hi: int, T: int, S: int) -> str:
    if lo <= 1 - S or hi >= T - 1:
        return f"t - s <= {hi}" if lo <= 1 - S else f"t - s >= {lo}"
    return f"{lo} <= t - s <= {hi}"


def _read_by_all(chosen: Tensor) -> AttentionGraph:
    """Every node reads the chosen ones."""
    return cross_documents(torch.zeros_like(chosen, dtype=torch.int64), torch.where(chosen, 0, 1))


def _first(c: SimpleNamespace, number: int) -> AttentionGraph:
    """Every token reads the first ones."""
    return _read_by_all(torch.arange(c.n) < number)


def _chosen(c: SimpleNamespace) -> AttentionGraph:
    """Every token reads the global tokens."""
    tokens = (c.tokens,) if isinstance(c.tokens, int) else c.tokens
    return _read_by_all(torch.isin(torch.arange(c.n), torch.as_tensor(tokens)))


def _past(c: SimpleNamespace) -> AttentionGraph:
    """Without a limit: every token, or every earlier one."""
    return causal(c.n) if c.causal else full(c.n)


def _side(c: SimpleNamespace) -> int:
    return c.window - 1 if c.causal else c.window // 2


def _labels(c: SimpleNamespace) -> Tensor:
    return torch.repeat_interleave(torch.tensor(c.lengths)) if c.ids is None else c.ids


def _within(c: SimpleNamespace, graph: AttentionGraph) -> AttentionGraph:
    return graph & causal(c.n) if c.causal else graph


def _apart(segments: Tensor) -> AttentionGraph:
    """Each segment reads itself; tokens of none read nothing."""
    free = int(segments.max()) + 1
    return cross_documents(torch.where(segments < 0, free, segments), torch.where(segments < 0, free + 1, segments))


def _halves(c: SimpleNamespace, **other: AttentionGraph | None) -> AttentionGraph:
    """Block diffusion with one of its four quarters another one."""
    N = c.num_nodes
    quarters = {"noisy": _own(c), "context": _before(c), "back": None, "clean": block_causal(N, c.block)} | other
    return composite([[quarters["noisy"], quarters["context"]], [quarters["back"], quarters["clean"]]])


def _own(c: SimpleNamespace) -> AttentionGraph:
    return block_local(c.num_nodes, c.block)


def _before(c: SimpleNamespace) -> AttentionGraph:
    """The blocks before a token's own."""
    return block_causal(c.num_nodes, c.block) - _own(c)


def _late(c: SimpleNamespace, by: int) -> AttentionGraph | None:
    if c.look_back or c.look_ahead or c.wrap or c.block == 1:
        return None
    return _within(c, documents((torch.arange(c.n) + c.block - by) // c.block))


_TABLE: dict[str, tuple[Row, ...]] = {
    "sliding_window": (
        Row(0, "the window is not applied: every token is read", lambda c: None if c.causal else full(c.n)),
        Row(0, "the window is not applied: every earlier token is read", lambda c: causal(c.n) if c.causal else None),
        Row(
            1,
            "the window is not applied: every token {dilation} apart is read",
            lambda c: (
                None if c.dilation == 1 else sliding_window(c.n, 2 * c.n + 1, causal=c.causal, dilation=c.dilation)
            ),
        ),
        Row(
            1,
            "the future is not masked: t - s < {window} alone, without t >= s",
            lambda c: asymmetric_window(c.n, _side(c), c.n) if c.causal and c.dilation == 1 else None,
        ),
        Row(
            1,
            "the window reads as far ahead as back: |t - s| < {window}",
            lambda c: sliding_window(c.n, 2 * c.window - 1, causal=False, dilation=c.dilation) if c.causal else None,
        ),
        Row(
            1,
            "one side of the window is open: t - s in place of |t - s|, every later token is read",
            lambda c: None if c.causal or c.dilation > 1 else asymmetric_window(c.n, _side(c), c.n),
        ),
        Row(
            1,
            "one side of the window is open: s - t in place of |t - s|, every earlier token is read",
            lambda c: None if c.causal or c.dilation > 1 else asymmetric_window(c.n, c.n, _side(c)),
        ),
        Row(
            2,
            "the window is measured from the start: the first {window} tokens are read",
            lambda c: sinks(c.n, c.window) if c.causal else _first(c, c.window),
        ),
        Row(1, "chunks of {window} tokens in place of a window", lambda c: block_local(c.n, c.window, causal=c.causal)),
        Row(
            2,
            "chunks of {window} tokens, and one before, in place of a window",
            lambda c: block_local(c.n, c.window, look_back=1, causal=c.causal),
        ),
        Row(2, "chunks of {window} tokens, read both ways, in place of a window", lambda c: block_local(c.n, c.window)),
        Row(
            3,
            "{window} tokens in place of {window} steps of {dilation}: a dense window as long",
            lambda c: (
                None
                if c.dilation == 1
                else sliding_window(c.n, (1 if c.causal else 2) * _side(c) * c.dilation + 1, causal=c.causal)
            ),
        ),
    ),
    "causal": (
        Row(
            2,
            "one source too many in the future: diagonal=1 of torch.tril",
            lambda c: asymmetric_window(c.n, c.n, 1) if c.num_sources is None else None,
        ),
    ),
    "asymmetric_window": (
        Row(
            0,
            "the window is not applied: left={left} is no limit",
            lambda c: asymmetric_window(
                c.num_targets, c.n + (c.num_sources or 0), c.right, num_sources=c.num_sources, align=c.align
            ),
        ),
        Row(
            1,
            "right={right} is no limit: the future is not masked",
            lambda c: asymmetric_window(
                c.num_targets, c.left, c.n + (c.num_sources or 0), num_sources=c.num_sources, align=c.align
            ),
        ),
    ),
    "block_local": (
        Row(0, "the blocks are not applied: every token is read", lambda c: None if c.causal else full(c.n)),
        Row(0, "the blocks are not applied: every earlier token is read", lambda c: causal(c.n) if c.causal else None),
        Row(
            1,
            "a window of {block} tokens in place of blocks",
            lambda c: sliding_window(c.n, c.block if c.causal else c.block | 1, causal=c.causal),
        ),
        Row(3, "blocks start one token late", lambda c: _late(c, 1)),
        Row(3, "blocks start one token early", lambda c: _late(c, -1)),
    ),
    "block_causal": (
        Row(
            0,
            "a strict block: > in place of >=, the own block is not read",
            lambda c: block_causal(c.n, c.block) - block_local(c.n, c.block),
        ),
        Row(
            1,
            "a strict block and the token itself: the rest of the own block is not read",
            lambda c: (block_causal(c.n, c.block) - block_local(c.n, c.block)).with_self_loops(),
        ),
        Row(3, "blocks start one token late", lambda c: ranked((torch.arange(c.n) + c.block - 1) // c.block)),
        Row(3, "blocks start one token early", lambda c: ranked((torch.arange(c.n) + 1) // c.block)),
        Row(0, "causal between tokens, not between blocks", lambda c: causal(c.n)),
        Row(1, "the own block alone is read, == in place of >=", lambda c: block_local(c.n, c.block)),
        Row(2, "the next block is read, too", lambda c: block_local(c.n, c.block, look_back=c.n, look_ahead=1)),
    ),
    "sinks": (
        Row(
            0,
            "earlier tokens read the sinks, too: s < {k} without t >= s, as if & bound weaker than |",
            lambda c: _first(c, c.k),
        ),
        Row(2, "sinks tested on the query, t < {k}, not on the key", lambda c: causal(c.n) & _first(c, c.k).reverse()),
    ),
    "prefix": (
        Row(0, "the prefix is not applied: causal alone", lambda c: causal(c.n)),
        Row(
            0,
            "the prefix is tested on the query, t < {prefix}, not on the key",
            lambda c: causal(c.n) | _first(c, c.prefix).reverse(),
        ),
        Row(
            2,
            "causal is strict, > in place of >=: tokens after the prefix do not read themselves",
            lambda c: causal(c.n).without_self_loops() | _first(c, c.prefix),
        ),
        Row(
            1,
            "the suffix is bidirectional: tokens after the prefix read each other both ways",
            lambda c: ranked((torch.arange(c.n) >= c.prefix).long()),
        ),
        Row(1, "the prefix alone is read: & where | was meant", lambda c: sinks(c.n, c.prefix)),
        Row(
            2,
            "tokens after the prefix do not read it: the prefix is a document of its own",
            lambda c: composite([[full(c.prefix), None], [None, causal(c.n - c.prefix)]]),
        ),
        Row(
            2,
            "the prefix alone is read, by every token",
            lambda c: _first(c, c.prefix),
        ),
    ),
    "documents": (
        Row(
            1,
            "documents compared by >= in place of ==: a document reads the earlier ones",
            lambda c: _within(c, ranked(_labels(c))),
        ),
        Row(
            2,
            "documents compared by <= in place of ==: a document reads the later ones",
            lambda c: _within(c, ranked(_labels(c)).reverse()),
        ),
        Row(
            2,
            "the first document reads nothing and is not read, as if its id said padding",
            lambda c: _within(c, _apart(_labels(c).masked_fill(_labels(c) == _labels(c).min(), -1))),
        ),
        Row(
            2,
            "documents inverted: != in place of ==, a document reads the others",
            lambda c: _within(c, ~documents(_labels(c))),
        ),
        Row(
            2,
            "documents or causal: | where & was meant",
            lambda c: documents(_labels(c)) | causal(c.n) if c.causal else None,
        ),
    ),
    "cross_documents": (
        Row(
            1,
            "source_ids taken for target_ids: tokens of no document, such as padding, read one another",
            lambda c: (
                documents(c.source_ids) if c.source_ids.numel() == c.n and bool((c.source_ids >= 0).all()) else None
            ),
        ),
        Row(
            1,
            "target_ids taken for source_ids: tokens of no document, such as padding, read one another",
            lambda c: (
                documents(c.target_ids) if c.source_ids.numel() == c.n and bool((c.target_ids >= 0).all()) else None
            ),
        ),
        Row(
            0,
            "padding is masked for sources (keys) alone: its targets read like others",
            lambda c: _read_by_all(torch.isin(c.source_ids, c.target_ids)) if _is_padding(c) else None,
        ),
        Row(
            0,
            "padding is masked for targets (queries) alone: its sources are read",
            lambda c: _read_by_all(torch.isin(c.target_ids, c.source_ids)).reverse() if _is_padding(c) else None,
        ),
        Row(
            3,
            "padding on the other side: numbered from the other end",
            lambda c: cross_documents(c.target_ids.flip(0), c.source_ids.flip(0)) if _is_padding(c) else None,
        ),
    ),
    "global_tokens": (
        Row(1, "global tokens are read by all, but do not read all", _chosen),
        Row(1, "global tokens read all, but are not read by all", lambda c: _chosen(c).reverse()),
    ),
    "bidirectional_segments": (
        Row(0, "the segments are not applied: causal alone", lambda c: causal(c.n)),
        Row(
            0,
            "tokens of no segment read each other both ways: -1 == -1, without segment >= 0",
            lambda c: bidirectional_segments(torch.where(c.segments < 0, c.segments.max() + 1, c.segments)),
        ),
        Row(
            1,
            "all segments taken for one: they read one another",
            lambda c: bidirectional_segments(c.segments.clamp(max=0)),
        ),
        Row(1, "the segments alone are read: causal left out", lambda c: _apart(c.segments)),
        Row(2, "causal within segments alone: & where | was meant", lambda c: _apart(c.segments) & causal(c.n)),
        Row(
            2,
            "targets of segments read everything: the source's segment is not tested",
            lambda c: causal(c.n) | _read_by_all(c.segments >= 0).reverse(),
        ),
        Row(
            2,
            "sources of segments are read by all: the target's segment is not tested",
            lambda c: causal(c.n) | _read_by_all(c.segments >= 0),
        ),
    ),
    "block_diffusion": (
        Row(
            0,
            "a leak: noisy tokens read the clean copy of their own block, >= in place of >",
            lambda c: _halves(c, context=block_causal(c.num_nodes, c.block)),
        ),
        Row(
            1,
            "noisy tokens read the earlier noisy blocks, too",
            lambda c: _halves(c, noisy=block_causal(c.num_nodes, c.block)),
        ),
        Row(
            1,
            "a leak: noisy tokens read all clean blocks",
            lambda c: _halves(c, context=full(c.num_nodes)),
        ),
        Row(2, "clean tokens read all clean blocks", lambda c: _halves(c, clean=full(c.num_nodes))),
        Row(1, "noisy tokens do not read the clean blocks", lambda c: _halves(c, context=None)),
        Row(
            2,
            "noisy tokens read the clean copy of their own block alone, == in place of >",
            lambda c: _halves(c, context=_own(c)),
        ),
        Row(
            2,
            "noisy tokens read their own block causally",
            lambda c: _halves(c, noisy=block_local(c.num_nodes, c.block, causal=True)),
        ),
        Row(
            1,
            "clean tokens do not read their own block: a strict block, > in place of >=",
            lambda c: _halves(c, clean=_before(c)),
        ),
        Row(
            1,
            "clean tokens are causal between tokens, not between blocks",
            lambda c: _halves(c, clean=causal(c.num_nodes)),
        ),
        Row(1, "clean tokens read the earlier noisy blocks, too", lambda c: _halves(c, back=_before(c))),
        Row(1, "clean tokens read their own noisy block, too", lambda c: _halves(c, back=_own(c))),
        Row(
            1,
            "clean tokens read the noisy blocks up to their own, too",
            lambda c: _halves(c, back=block_causal(c.num_nodes, c.block)),
        ),
        Row(
            2,
            "clean tokens come first: the halves are swapped",
            lambda c: composite([[block_causal(c.num_nodes, c.block), None], [_before(c), _own(c)]]),
        ),
        Row(2, "block_causal over both halves", lambda c: block_causal(c.n, c.block)),
        Row(2, "causal over both halves", lambda c: causal(c.n)),
    ),
    "ancestors": (
        Row(0, "siblings in place of ancestors", lambda c: siblings(c.parent, self_loops=c.self_loops)),
        Row(
            0,
            "siblings beside ancestors",
            lambda c: ancestors(c.parent, self_loops=c.self_loops) | siblings(c.parent, self_loops=c.self_loops),
        ),
        Row(0, "the tree is not applied: every earlier token is read", lambda c: causal(c.n)),
        Row(
            1,
            "the parent alone is read, not the ancestors before it",
            lambda c: tree(c.parent, read="parent", self_loops=c.self_loops),
        ),
        Row(2, "parents and children in place of ancestors", lambda c: tree(c.parent, self_loops=c.self_loops)),
        Row(
            2,
            "the children are read, not the ancestors",
            lambda c: tree(c.parent, read="children", self_loops=c.self_loops),
        ),
    ),
    "siblings": (Row(1, "ancestors in place of siblings", lambda c: ancestors(c.parent, self_loops=c.self_loops)),),
    "tree": (
        Row(1, "siblings in place of neighbours in the tree", lambda c: siblings(c.parent, self_loops=c.self_loops)),
        Row(1, "all ancestors, not the parent alone", lambda c: ancestors(c.parent, self_loops=c.self_loops)),
    ),
    "ranked": (
        Row(
            1, "in the order of the tokens, not of the ranks", lambda c: causal(c.n) if c.source_ranks is None else None
        ),
    ),
    "strided": (
        Row(0, "sliding_window({num_nodes}, {stride}) left out", lambda c: sliding_window(c.n, c.n, dilation=c.stride)),
        Row(0, "the stride left out", lambda c: sliding_window(c.n, c.stride)),
        Row(1, "fixed({num_nodes}, {stride}) in place of strided", lambda c: fixed(c.n, c.stride)),
        Row(
            1,
            "every {stride}th column, s % {stride} == 0, in place of every {stride}th token back",
            lambda c: sliding_window(c.n, c.stride) | causal(c.n) & _read_by_all(torch.arange(c.n) % c.stride == 0),
        ),
    ),
    "fixed": (Row(1, "strided({num_nodes}, {stride}) in place of fixed", lambda c: strided(c.n, c.stride)),),
}


def _is_padding(c: SimpleNamespace) -> bool:
    """Whether one document is all that there is beside padding."""
    shared = torch.unique(c.target_ids[torch.isin(c.target_ids, c.source_ids)])
    return bool(c.source_ids.numel() == c.n and shared.numel() == 1)
