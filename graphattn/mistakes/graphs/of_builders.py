"""The table of wrong calls of builders: common confusions, the commonest first."""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import SIGNS, Expression
from ...graphs import (
    ancestors,
    bidirectional_segments,
    block_local,
    causal,
    causal_by_rank,
    composite,
    cross,
    cross_documents,
    documents,
    full,
    siblings,
    sliding_window,
    tree,
)
from ...graphs.network.trees import tree_depth
from .mutant import REFUSED, REMOTE, Mutant, Node, Padding, arguments, quoted
from .of_grids import of_grid
from .simple import band_of

_MOVED = ((0, 1), (0, -1), (-1, 0), (1, 0))
_LEVELLED = 512  # nodes of a tree whose levels, which are scattered, are compared
_BLOCKS = 17  # all below, and powers of two
Change = Callable[["BuilderCall"], AttentionGraph | None]
"""The graph that is made instead; ``None`` where these arguments leave nothing to mistake."""
Row = tuple[int, str, Change]
"""The rank of a :class:`Mutant`; its words, in which ``{window}`` is the argument of that name; its
change.
"""


class BuilderCall(SimpleNamespace):
    """The arguments of a call by name, its number of targets, and graphs for mistakes."""

    @property
    def past(self) -> AttentionGraph:
        return causal(self.n)

    @property
    def is_square(self) -> bool:
        return getattr(self, "num_sources", None) is None

    @property
    def side(self) -> int:
        """Tokens before the target in a window."""
        if isinstance(self.window, tuple):
            return int(self.window[0])
        return int(self.window - 1 if self.causal else self.window // 2)

    @property
    def hubs(self) -> AttentionGraph:
        """Every token reads the global tokens."""
        if isinstance(self.tokens, int):
            tokens = (self.tokens,)
        else:
            tokens = self.tokens
        return _read_by_all(torch.isin(torch.arange(self.n), torch.as_tensor(tokens)))

    @property
    def labels(self) -> Tensor:
        label: Tensor = (
            torch.repeat_interleave(torch.tensor(self.lengths)) if self.ids is None else self.ids
        )
        return label

    @property
    def numbers(self) -> Tensor:
        """The labels of documents as numbers from 0, in their order."""
        return torch.unique(self.labels, return_inverse=True)[1]

    @property
    def blocks(self) -> Tensor:
        return torch.arange(self.num_nodes) // self.block

    @property
    def own_segment(self) -> AttentionGraph:
        """Each segment reads itself; tokens of none read nothing."""
        return documents(self.segments - self.segments.min(), causal=False) & _clique(
            self.segments >= 0
        )

    @property
    def above(self) -> AttentionGraph:
        return ancestors(self.parent, window=self.window, self_loops=self.self_loops)

    @property
    def beside(self) -> AttentionGraph:
        return siblings(self.parent, self_loops=self.self_loops)

    @property
    def level(self) -> AttentionGraph:
        """Nodes of one level of a tree read each other."""
        if self.n > _LEVELLED:
            raise GraphError(
                f"levels of {self.n:,} nodes are too many intervals (limit {_LEVELLED:,} nodes)"
            )
        parent = torch.where(self.parent < 0, torch.arange(self.n), self.parent.long())
        return documents(tree_depth(parent), causal=False)

    def levels(self, number: int) -> AttentionGraph:
        """Ancestors of so many levels."""
        return tree(self.parent, read="parent", self_loops=self.self_loops).k_hop(number)

    def within(self, graph: AttentionGraph) -> AttentionGraph:
        """The graph, without the future if the call is causal."""
        if self.causal:
            return graph & self.past
        return graph


def of_builder(part: Node, graph: AttentionGraph) -> Iterator[Mutant]:
    """Every row of the table about a call, and the mistakes about bands and grids."""
    if isinstance(part, Expression) and part.function in _TABLE:
        values = arguments(part)
        on_host = {
            name: value.cpu() if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        call = BuilderCall(**on_host, n=graph.num_targets)
        if isinstance(part, Padding):
            where = f": {part.nodes}"
            if not part.is_around:
                words = "the choice of sources left out" + where + " are read, too"
                yield Mutant(words, part, _every(graph))
                return
            words = f"padding left out{where} are padding that the mask lets through"
            yield Mutant(words, part, _every(graph), rank=0)
        else:
            where = f", in {quoted(part)}"
        for rank, words, change in _TABLE[part.function]:
            try:
                mutated = change(call)
            except REFUSED:
                continue
            if mutated is not None:
                yield Mutant(
                    words.format(**values) + where, part, mutated.to(graph.device), rank=rank
                )
    if isinstance(part, Expression) and part.function not in SIGNS:
        for words, changed in of_grid(part, graph):
            yield Mutant(f"{words}, in {quoted(part)}", part, changed)
    for words, node in _bands(graph):
        yield Mutant(f"{words}, in {quoted(part)}", part, node, counted=True, rank=REMOTE)


def _bands(graph: AttentionGraph) -> Iterator[tuple[str, Node]]:
    """A band with its ends moved; an end in the corner of the mask is open, and stays."""
    band = band_of(graph)
    if band is None:
        return
    (lo, hi), T, S = band, graph.num_targets, graph.num_sources
    for lo_by, hi_by in _MOVED:
        if lo <= 1 - S:
            low = lo
        else:
            low = lo + lo_by
        if hi >= T - 1:
            high = hi
        else:
            high = hi + hi_by
        if low <= high:
            yield (
                f"{_reach(low, high, T, S)} where {_reach(lo, hi, T, S)} was meant",
                _band(T, S, low, high),
            )
    if T == S and lo == 0 and hi >= T - 1:
        for block in sorted(
            {*range(2, min(T, _BLOCKS)), *(1 << k for k in range(1, T.bit_length()))}
        ):
            text = f"a target reads all of its block of {block} tokens: block_causal"
            yield text, Expression("block_causal", (T, block))


def _band(T: int, S: int, lo: int, hi: int) -> AttentionGraph:
    """``lo <= t - s <= hi``."""

    def upto(left: int, right: int) -> AttentionGraph:
        return sliding_window(T, (left, right), num_sources=S, align="start")

    if lo <= 0 <= hi:
        return upto(hi, -lo)
    if lo > 0:
        return upto(hi, 0) - upto(lo - 1, 0)
    return upto(0, -lo) - upto(0, -hi - 1)


def _reach(lo: int, hi: int, T: int, S: int) -> str:
    if lo <= 1 - S or hi >= T - 1:
        if lo <= 1 - S:
            return f"t - s <= {hi}"
        return f"t - s >= {lo}"
    return f"{lo} <= t - s <= {hi}"


# --- graphs by labels of tokens


def _clique(chosen: Tensor, sources: Tensor | None = None) -> AttentionGraph:
    """The chosen targets read the chosen sources, which are the same tokens by default."""
    if sources is None:
        sources = chosen
    return cross_documents(torch.where(chosen, 0, 1), torch.where(sources, 0, 2))


def _read_by_all(chosen: Tensor) -> AttentionGraph:
    """Every token reads the chosen ones."""
    return _clique(torch.ones_like(chosen, dtype=torch.bool), chosen)


def _first(c: BuilderCall, number: int) -> AttentionGraph:
    """Every token reads the first ones."""
    return _read_by_all(torch.arange(c.n) < number)


def _every(graph: AttentionGraph) -> AttentionGraph:
    return cross(graph.num_targets, graph.num_sources).to(graph.device)


def _without(c: BuilderCall, lost: int) -> AttentionGraph:
    """Each document reads itself, but for one."""
    return c.within(documents(c.numbers, causal=False) & _clique(c.numbers != lost))


def _by_boundaries(c: BuilderCall) -> AttentionGraph:
    """The lengths of documents taken for the places where they end."""
    ends = torch.unique_consecutive(c.labels, return_counts=True)[1].unique()
    return c.within(documents(torch.bucketize(torch.arange(c.n), ends, right=True), causal=False))


_within_blocks = partial(documents, causal=False)


def _strictly(labels: Tensor) -> AttentionGraph:
    return causal_by_rank(labels, strict=True)


def _diffusion(
    c: BuilderCall,
    noisy: Callable[[Tensor], AttentionGraph] = _within_blocks,
    context: Callable[[Tensor], AttentionGraph | None] = _strictly,
    clean: Callable[[Tensor], AttentionGraph] = causal_by_rank,
) -> AttentionGraph:
    """Block diffusion, one of the quarters of whose mask relates blocks in another way."""
    return composite([[noisy(c.blocks), context(c.blocks)], [None, clean(c.blocks)]])


# --- padding: one document beside tokens of none


def _padding(change: Callable[[Tensor, Tensor], AttentionGraph | None]) -> Change:
    """A change of targets and sources that are no padding, if one document is all beside it."""

    def changed(c: BuilderCall) -> AttentionGraph | None:
        real = torch.isin(c.target_ids, c.source_ids)
        if c.source_ids.numel() != c.n or torch.unique(c.target_ids[real]).numel() != 1:
            return None
        return change(real, torch.isin(c.source_ids, c.target_ids))

    return changed


def _wider(real: Tensor) -> Tensor:
    """A token more at each end that is not that of the sequence."""
    dilated = real.clone()
    dilated[1:] |= real[:-1]
    dilated[:-1] |= real[1:]
    return dilated


def _one_numbering(c: BuilderCall) -> AttentionGraph | None:
    """Both sides of a graph numbered by the labels of its sources."""
    ids = c.source_ids
    is_one = ids.numel() == c.n and bool((ids >= 0).all()) and bool((ids != ids[:1]).any())
    if is_one:
        return documents(ids, causal=False)
    return None


# --- windows


def _window(c: BuilderCall, left: int, right: int) -> AttentionGraph | None:
    """A dense window; ``None`` in place of a dilated one, or where the sources are others."""
    if getattr(c, "dilation", 1) == 1 and c.is_square:
        return sliding_window(c.n, (left, right))
    return None


def _not_applied(noun: str) -> Row:
    """Row of a causal call: every earlier token is read; a full mask is a mutant of any graph."""
    return (
        0,
        f"{noun} not applied: every earlier token is read",
        lambda c: c.past if getattr(c, "causal", True) and c.is_square else None,
    )


_TABLE: dict[str, list[Row]] = {
    "sliding_window": [
        _not_applied("the window is"),
        (
            1,
            "the future is not masked: t - s < {window} alone, without t >= s",
            lambda c: _window(c, c.side, c.n) if c.causal else None,
        ),
        (
            1,
            "the window reads as far ahead as back: |t - s| < {window}",
            lambda c: (
                sliding_window(c.n, 2 * c.window - 1, causal=False, dilation=c.dilation)
                if c.causal
                else None
            ),
        ),
        (
            1,
            "one side of the window is open: t - s in place of |t - s|, every later token is read",
            lambda c: None if c.causal else _window(c, c.side, c.n),
        ),
        (
            1,
            "chunks of {window} tokens in place of a window",
            lambda c: None if c.causal is None else block_local(c.n, c.window, causal=c.causal),
        ),
    ],
    "causal": [
        (
            2,
            "one source too many in the future: diagonal=1 of torch.tril",
            lambda c: _window(c, c.n, 1),
        )
    ],
    "block_local": [
        _not_applied("the blocks are"),
        (
            1,
            "a window of {block} tokens in place of blocks",
            lambda c: sliding_window(c.n, c.block if c.causal else c.block | 1, causal=c.causal),
        ),
    ],
    "block_causal": [
        (
            0,
            "a strict block: > in place of >=, the own block is not read",
            lambda c: _strictly(c.blocks),
        ),
        (
            1,
            "a strict block and the token itself: the rest of the own block is not read",
            lambda c: _strictly(c.blocks).with_self_loops(),
        ),
        (0, "causal between tokens, not between blocks", lambda c: c.past),
        (
            1,
            "the own block alone is read, == in place of >=",
            lambda c: documents(c.blocks, causal=False),
        ),
    ],
    "sinks": [
        (
            0,
            "earlier tokens read the sinks, too: s < {k} without t >= s, as if & bound weaker "
            "than |",
            lambda c: _first(c, c.k),
        ),
    ],
    "prefix": [
        _not_applied("the prefix is"),
        (
            0,
            "the prefix is tested on the query, t < {prefix}, not on the key",
            lambda c: c.past | _first(c, c.prefix).reverse(),
        ),
        (
            1,
            "the suffix is bidirectional: tokens after the prefix read each other both ways",
            lambda c: causal_by_rank((torch.arange(c.n) >= c.prefix).long()),
        ),
    ],
    "documents": [
        (
            1,
            "documents compared by >= in place of ==: a document reads the earlier ones",
            lambda c: c.within(causal_by_rank(c.numbers)),
        ),
        (
            2,
            "the first document reads nothing and is not read, as if its id said padding",
            lambda c: _without(c, 0),
        ),
        (
            2,
            "the last document reads nothing and is not read, as if the boundaries lacked their end",
            lambda c: _without(c, int(c.numbers.max())),
        ),
        (1, "lengths of documents taken for boundaries, not added up", _by_boundaries),
        (
            1,
            "ids multiplied, not compared: all tokens whose id is not 0 read one another",
            lambda c: c.within(_clique(c.labels != 0)),
        ),
    ],
    "cross_documents": [
        (
            1,
            "source_ids taken for target_ids: tokens of no document, such as padding, read one "
            "another",
            _one_numbering,
        ),
        (
            0,
            "padding is masked for sources (keys) alone: its targets read like others",
            _padding(lambda targets, sources: None if targets.all() else _read_by_all(sources)),
        ),
        (
            0,
            "padding is masked for targets (queries) alone: its sources are read",
            _padding(
                lambda targets, sources: None if targets.all() else _read_by_all(targets).reverse()
            ),
        ),
        (
            1,
            "padding is one token too short: a token of padding is taken for a real one",
            _padding(lambda targets, sources: _clique(_wider(targets), _wider(sources))),
        ),
        (
            1,
            "padding is one token too long: a real token is taken for padding",
            _padding(lambda targets, sources: _clique(~_wider(~targets), ~_wider(~sources))),
        ),
        (
            3,
            "padding on the other side: numbered from the other end",
            _padding(lambda targets, sources: _clique(targets.flip(0), sources.flip(0))),
        ),
    ],
    "global_tokens": [
        (1, "global tokens are read by all, but do not read all", lambda c: c.hubs),
        (1, "global tokens read all, but are not read by all", lambda c: c.hubs.reverse()),
    ],
    "bidirectional_segments": [
        _not_applied("the segments are"),
        (
            0,
            "tokens of no segment read each other both ways: -1 == -1, without segment >= 0",
            lambda c: bidirectional_segments(c.segments - c.segments.min()),
        ),
        (
            1,
            "all segments taken for one: they read one another",
            lambda c: bidirectional_segments(c.segments.clamp(max=0)),
        ),
        (1, "the segments alone are read: causal left out", lambda c: c.own_segment),
    ],
    "block_diffusion": [
        (
            0,
            "a leak: noisy tokens read the clean copy of their own block, >= in place of >",
            lambda c: _diffusion(c, context=causal_by_rank),
        ),
        (
            1,
            "noisy tokens do not read the clean blocks",
            lambda c: _diffusion(c, context=lambda blocks: None),
        ),
        (
            1,
            "noisy tokens read the earlier noisy blocks, too",
            lambda c: _diffusion(c, noisy=causal_by_rank),
        ),
        (
            1,
            "noisy tokens read all noisy blocks",
            lambda c: _diffusion(c, noisy=lambda blocks: full(c.num_nodes)),
        ),
        (
            1,
            "clean tokens do not read their own block: a strict block, > in place of >=",
            lambda c: _diffusion(c, clean=_strictly),
        ),
    ],
    "ancestors": [
        _not_applied("the tree is"),
        (0, "siblings in place of ancestors", lambda c: c.beside),
        (0, "siblings beside ancestors", lambda c: c.above | c.beside),
        (0, "the window left out", lambda c: ancestors(c.parent, self_loops=c.self_loops)),
        (1, "the parent alone is read, not the ancestors before it", lambda c: c.levels(1)),
        (1, "two levels of ancestors are read, not all", lambda c: c.levels(2)),
        (
            1,
            "a level too high: the ancestors of the parent are read, not the parent",
            lambda c: c.above - tree(c.parent, read="parent"),
        ),
        (1, "nodes of the same level are read, not the ancestors", lambda c: c.level),
    ],
    "sparse_strided": [
        (
            0,
            "sliding_window({num_nodes}, {stride}, causal=True) left out",
            lambda c: sliding_window(c.n, c.n, causal=True, dilation=c.stride),
        ),
        (0, "the stride left out", lambda c: sliding_window(c.n, c.stride, causal=True)),
    ],
}
