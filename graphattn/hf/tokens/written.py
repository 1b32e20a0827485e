"""Rows of tokens that were computed before: those in a cache must stay as they were.

Keys and values in a cache are not computed again, so each step of ``generate`` is compared with the
graphs of the one before.
"""

from bisect import bisect_left
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph import runs as _runs
from .rows import Graph

Places = range | tuple[int, ...]


class Tokens(NamedTuple):
    """Numbers of tokens of a row: ``held`` in the cache, ``new`` ones, and ``sources`` so far."""

    held: int
    new: int
    sources: int

    @property
    def total(self) -> int:
        return self.held + self.new


class TokenRow(NamedTuple):
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

    rows: list[TokenRow]
    tokens: Tokens
    ids: Tensor | None

    def reordered(self, order: Tensor) -> "Written":
        """Rows that a beam search selects."""
        ids = self.ids
        if ids is not None:
            ids = ids[order.to(ids.device)]
        return self._replace(rows=[self.rows[row] for row in order.tolist()], ids=ids)


def check_drafts(
    rows: list[TokenRow], tokens: Tokens, prompt: int | None, *, crosses: bool
) -> None:
    """Refuse edges from drafts to tokens before them, as drafts may be rejected."""
    if crosses or prompt is None or tokens.new == 1 or tokens.total <= prompt:
        return
    for example, row in enumerate(rows):
        reader = torch.tensor(row.targets[bisect_left(row.targets, tokens.held) :])
        place = torch.arange(len(row.targets) - len(reader), len(row.targets))
        if row.is_new:
            place = torch.arange(len(reader))
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


def keep_written(
    key: Any,
    rows: list[TokenRow],
    tokens: Tokens,
    written: dict[Any, Written],
    ids: Tensor | None,
) -> None:
    """Keep the rows of the tokens, and compare those in a cache with the rows that they had.

    Raises:
        GraphError: If one has changed.
    """
    if any(row.is_new for row in rows):
        return
    before = written.get(key)
    if before is not None and len(before.rows) == len(rows):
        end = min(before.tokens.total, tokens.held)
        if before.ids is None or ids is None:
            same = None
        else:
            same = (before.ids[:, :end] == ids[:, :end].to(before.ids.device)).all(1).cpu()
        compared: set[tuple[int, int]] = set()
        for example, (old, new) in enumerate(zip(before.rows, rows, strict=True)):
            pair = (id(old), id(new))
            if pair not in compared and (same is None or bool(same[example])):
                compared.add(pair)
                _compare(old, new, end, example)
    written[key] = Written(rows, tokens, ids)


def _compare(old: TokenRow, new: TokenRow, end: int, example: int) -> None:
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
    if not graph._is_fixed:
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
    row: TokenRow,
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
