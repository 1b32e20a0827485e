"""Tiles: batched dense attention on blocks of targets, each with its sources."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.limits import MAX_BYTES
from ...graph.modes import constant_result, plain_operations_only, without_autocast
from ...operands import Inputs, Outputs
from ...plans.blocks import least_work, survey
from ...plans.cache import known
from ..base import Backend
from ..device import without_kernels
from ..rates import revision
from ..request import Request, reasons_against_products
from ..rows import WORK
from ..sdpa import is_unfused
from .blocks import block_bytes, block_run, block_work, reasons_against_blocks

MOST_TARGETS = 1 << 21  # planning them takes seconds


def tiles_bytes(pairs: float, columns: float, request: Request) -> int:
    """Bytes that tiles of so many pairs and columns hold in the forward pass."""
    itemsize = torch.finfo(request.statistics).bits // 8
    if is_unfused(request):
        bytes_per_pair = 4 * request.batch * request.heads * itemsize
    else:
        bytes_per_pair = (1 + itemsize) * request.batch
    return int(columns * request.floats_per_pair * itemsize + pairs * bytes_per_pair)


class TilesBackend(Backend):
    """Windows, cells, documents, prefixes and their unions, as a few batched dense products."""

    name = "tiles"
    call_ms = 0.06
    training_factor = 3.8
    biased_training = 0.75
    place_bias_is_free = True
    ns = {"fused": 0.028, "unfused": 0.05, "blocks": 0.0102}
    least_width = {"fused": 20, "unfused": 48, "blocks": 16}
    amx = {"fused": 0.3}
    cuda = {"call_ms": 0.3, "fused": 3e-4, "unfused": 1e-3, "flex": 1.5e-4}
    halves = {"fused": 0.25, "flex": 0.25}  # on tensor cores

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        reasons = reasons_against_products(request)
        if request.weights:
            reasons.append("tiles hold no weight of each edge")
        if graph.has_repeated_edges:
            reasons.append("edges are repeated, and a tile holds each pair once")
        if graph.num_targets > MOST_TARGETS:
            reasons.append(f"blocks are planned for at most {MOST_TARGETS:,} targets")
        if reasons:
            return reasons
        if self.kind(graph, request) == "blocks":
            return []
        least = tiles_bytes(graph.num_edges, 0, request)  # a lower bound, if all tiles were full
        if least > MAX_BYTES and not self._compacted_ms(graph, request):
            return [f"it would hold {least:,} bytes and more for {graph.num_edges:,} edges"]
        needed = self.bytes_needed(graph, request)
        if needed > MAX_BYTES:
            fill = min(1.0, graph.num_edges / survey(graph).pairs)  # the pairs are an estimate
            return [f"it would hold {needed:,} bytes: edges fill only {fill:.2g} of its tiles"]
        return []

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        way = self.way(graph, request)
        if way == "blocks":
            return []
        warning = "a NaN or inf in a source reaches every target in the same tile, edge or not"
        if way == "compacted":
            return [_compacted().note(graph), warning]
        messages = {
            "flex": "it runs FlexAttention, compiled at the first call",
            "varlen": "it runs FlashAttention of sequences, torch's varlen_attn",
        }
        if way in messages:
            return [messages[way], warning]
        if survey(graph).pairs == graph.num_edges and not request.score_bias:
            return []
        return [warning]

    def reads_bias_by_place(self, graph: AttentionGraph, request: Request) -> bool:
        return self.kind(graph, request) == "blocks"

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        way = self.way(graph, request)
        if way == "blocks":
            return block_bytes(graph, request)
        if way == "flex":
            return _flex().flex_bytes(graph)
        if way == "varlen":
            return 4 * request.batch * graph.num_targets * request.heads  # its lse
        if way == "compacted":
            return _compacted().bytes_needed(graph, request)
        return tiles_bytes(survey(graph).pairs, survey(graph).columns, request)

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """Pairs in tiles, small tiles counted as more; or pairs in square blocks."""
        way = self.way(graph, request)
        if way == "blocks":
            return way, block_work(graph, request)
        if way == "flex":
            return way, _flex().flex_work(graph)
        if way == "varlen":
            return way, _varlen().varlen_work(graph)
        if way == "compacted":
            return way, _compacted().work(graph)
        pairs = max(survey(graph).work, least_work(graph))
        if request.of_rows:
            pairs *= WORK
        return way, pairs

    def least_ms(self, graph: AttentionGraph, request: Request) -> float:
        bare = super().least_ms(graph, request)
        if request.device.type != "cpu":
            return bare
        kind = self.kind(graph, request)
        if kind == "blocks":
            return bare + self.work_ms(request, kind, graph.num_edges)
        pairs: float = least_work(graph)
        if request.of_rows:
            pairs *= WORK
        return bare + self.work_ms(request, kind, pairs)

    def kind(self, graph: AttentionGraph, request: Request) -> str:
        """The kind of work of a call on the CPU, the block kernel's if it can; or of gathered tiles,
        SDPA's, or that of plain operations.
        """
        if not reasons_against_blocks(graph, request):
            return "blocks"
        if is_unfused(request):
            return "unfused"
        if request.lse and request.device.type == "cuda":  # where SDPA returns no lse
            return "unfused"
        return "fused"

    def way(self, graph: AttentionGraph, request: Request) -> str:
        """The quickest way to run a call.

        "blocks", the block kernel on the CPU; "flex", FlexAttention on blocks in the given order;
        "varlen", FlashAttention of sequences,
        and "compacted", a kernel that gathers the distinct sources of consecutive targets, if they
        were measured; or SDPA on gathered tiles, by its :meth:`kind`.
        """
        kind = self.kind(graph, request)
        ms = self._compacted_ms(graph, request)
        can_flex = request.device.type == "cuda" and not without_kernels(request.device)
        if can_flex and not _flex().reasons_against_flex(graph, request):
            ms["flex"] = self.work_ms(request, "flex", _flex().flex_work(graph))
        has_varlen = "varlen" in self.rates(request.device.type)
        if has_varlen and not _varlen().reasons_against_varlen(graph, request):
            ms["varlen"] = self.work_ms(request, "varlen", _varlen().varlen_work(graph))
        if not ms:
            return kind
        if min(ms.values()) >= self.work_ms(request, kind, least_work(graph)):
            ms = {kind: self.work_ms(request, kind, survey(graph).work), **ms}
        return min(ms, key=ms.__getitem__)

    def _compacted_ms(self, graph: AttentionGraph, request: Request) -> dict[str, float]:
        """The time of tiles with compacted sources, if they were measured and can run."""
        device = request.device.type
        if device != "cuda" or "compacted" not in self.rates(device):
            return {}
        compacted = _compacted()
        if compacted.reasons_against(graph, request):
            return {}
        return {"compacted": self.work_ms(request, "compacted", compacted.work(graph))}

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A window, a shorter one with dropout, which is written out, and cells, for CUDA, too."""
        from ...graphs import sliding_window, window_partition

        window, shorter = (sliding_window(nodes, 257, causal=False) for nodes in (4096, 1024))
        return [
            (window, {}),
            (shorter, {"dropout_p": 0.1}),
            (window_partition((56, 56), (7, 7)), {}),
        ]

    def trials(self) -> list[tuple[str, list[AttentionGraph]]]:
        from ...graphs import causal, documents, sliding_window

        uneven = documents(
            torch.repeat_interleave(torch.tensor([300, 1, 900, 41, 806])), causal=False
        )
        graphs = [
            sliding_window(4096, 257, causal=True),
            sliding_window(2048, 65, causal=False),
            uneven,
            uneven & causal(2048),
            causal(2048),
        ]
        return [("varlen", graphs), ("compacted", _compacted().trials())]

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        with without_autocast(inputs.query.device.type):
            return tiles_run(graph, inputs, lse)


def _compacted() -> Any:
    """The module of tiles with compacted sources: only a call on CUDA needs it."""
    from . import compacted as tiles_compacted

    return tiles_compacted


def _varlen() -> Any:
    """The module of FlashAttention of sequences, likewise."""
    from . import varlen

    return varlen


def _flex() -> Any:
    """The module of FlexAttention: only a call on CUDA needs it."""
    from . import flex

    return flex


@constant_result  # Python on the graph's structure: a constant of compiled code
def _way(graph: AttentionGraph, *fields: Any) -> str:
    request = Request(*fields)
    return known(
        graph, "ways of tiles", (revision(), request), partial(TilesBackend().way, graph, request)
    )


def tiles_run(graph: AttentionGraph, inputs: Inputs, lse: bool) -> Outputs:
    """Attention on a graph by the quickest way."""
    request = Request.of(inputs, lse=lse)
    way = _way(graph, *request)
    if way == "blocks":
        return block_run(graph, inputs, request)
    if way == "compacted":
        return _compacted().compacted_run(graph, inputs, lse)
    # most calls on a CPU do not gather
    from .gathered import gathered_run

    if way in ("flex", "varlen") and not plain_operations_only():

        def definition(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
            call_inputs = replace(inputs, query=query, key=key, value=value)
            outputs = gathered_run(graph, call_inputs, lse)
            if outputs.lse is None:
                return (outputs.output,)
            return (outputs.output, outputs.lse)

        outputs: Outputs
        if way == "varlen":
            outputs = _varlen().varlen_run(graph, inputs, definition)
        else:
            outputs = _flex().flex_run(graph, inputs, lse, definition)
        return outputs
    return gathered_run(graph, inputs, lse)
