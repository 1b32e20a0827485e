"""The edge operators on a GPU, as :mod:`.softmax.operator` and :mod:`.pairs.operator` compute them on the CPU.

Only the first call on a graph waits for the device (:mod:`.row_work`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import (
    KernelRows,
    KernelSizes,
    Strided,
    launch_rows,
    room_for,
    sizes_of,
    strided,
    walk_rows,
    word_of,
)
from ..cuda.row_work import LONG, Hubs, Work, schedule
from ..plain.dropout import dropout_of
from . import triton as triton_softmax
from . import triton_sums
from .call import SoftmaxCall


class Projected(NamedTuple):
    """The projection of edge features, and the products of it and the nodes."""

    weight: Tensor | None = None  # (H, F, D), contiguous
    queries: Tensor | None = None  # (B, T, H, F), if features join the scores
    sums: Tensor | None = None  # (B, T, H, F) by weight, or their gradients, if they join the sums


NO_FEATURES = Projected()


class OuterGradients(NamedTuple):
    """Gradients of results, and the weights that they meet."""

    weights: Tensor
    output: Strided | None
    alpha: Tensor | None
    lse: Tensor | None
    sums: Tensor | None
    delta: Tensor | None = None  # (B, pieces, H), of the rows that pieces belong to
    end: None = None


class KernelOperands(NamedTuple):
    """Operands of the kernels of softmax; None for those that a call does not have."""

    query: Strided | None
    key: Strided | None
    value: Strided | None
    bias: Strided | None
    attr: Strided | None
    queries: Tensor | None
    weight: Tensor | None
    seed: Tensor | None
    outer: OuterGradients | None = None
    end: None = None


class SoftmaxResults(NamedTuple):
    """Memory for the results of a softmax over rows, or pieces of rows; None for the others."""

    output: Tensor | None = None
    lse: Tensor | None = None
    alpha: Tensor | None = None
    kept: Tensor | None = None  # weights by place
    sums: Tensor | None = None  # of edge features
    peak: Tensor | None = None
    total: Tensor | None = None


class Gradients(NamedTuple):
    """Memory for what a pass over targets writes; None for what is not needed."""

    query: Tensor | None = None
    bias: Tensor | None = None
    attr: Tensor | None = None
    queries: Tensor | None = None  # of the features, (B, T, H, F)
    share: Tensor | None = None  # of each product, (B, E, H) by place
    weights: Tensor | None = None  # with dropout, by place
    removed: Tensor | None = None
    delta: Tensor | None = None


class GpuCall(SoftmaxCall):
    """The operands of ``edge_attention`` and its backward, as the kernels of a GPU take them."""

    @property
    def features(self) -> int:
        """F, or 0 without edge features."""
        if self.attr is None:
            return 0
        return self.attr.shape[-1]

    def numbers(self) -> tuple[float, float, int, float]:
        """scale, softcap, below which hash a weight is dropped, and the factor of the others."""
        return self.scale, self.softcap, *dropout_of(self.dropout_p)

    def rows(self, work: Work) -> KernelRows:
        """The rows of some programs."""
        return KernelRows(*work[1:], self.source, self.edge)

    def for_kernels(
        self, projected: Projected, grad_output: Tensor | None, *, products: bool, sums: bool
    ) -> tuple[KernelOperands, KernelSizes, Strided]:
        """Operands, sizes, and the gradient of the output, or values where there is none.

        Queries and keys are there with ``products``, values with ``sums``.
        """
        B, _, E, H = self.sizes
        given = self.value
        if grad_output is not None:
            given = grad_output
        align, (query, key, value, outer) = strided(self.query, self.key, self.value, given)
        D = 0
        DV = 0
        operands = KernelOperands(
            None,
            None,
            None,
            None,
            None,
            projected.queries,
            projected.weight,
            word_of(self.query, self.dropout_p, self.seed),
        )
        if products:
            D = self.query.shape[-1]
            operands = operands._replace(query=query, key=key)
        if sums:
            DV = self.value.shape[-1]
            operands = operands._replace(value=value)
        if self.bias is not None:
            # in its own dtype, and as features are, not in that of nodes
            bias = Strided(self.bias.detach(), *self.bias.expand(B, E, H).stride())
            operands = operands._replace(bias=bias)
        if self.attr is not None:
            features = self.attr.detach().contiguous()
            batch_stride = 0
            if len(features) > 1:
                batch_stride = E * self.features
            operands = operands._replace(attr=Strided(features, batch_stride))
        sizes = sizes_of(dtype_of_sums(self.query), H, D=D, DV=DV, F=self.features)
        sizes = sizes._replace(
            GROUP=H // max(1, self.key.shape[2]), CAPPED=self.softcap > 0, ALIGN=align
        )
        return operands, sizes, outer


def softmax_pass(
    call: GpuCall, written: SoftmaxResults, projected: Projected, *, products: bool = True
) -> None:
    """Softmax, written to results that are not None; without ``products`` a score is its bias."""
    B, T, E, H = call.sizes
    read, sizes, _ = call.for_kernels(
        projected, None, products=products, sums=written.output is not None
    )

    def launch(work: Work, results: SoftmaxResults) -> None:
        arguments = (read, call.rows(work), results, T, E)
        walk_rows(triton_softmax.forward, work, B, arguments, call.numbers(), sizes)

    work = schedule(call.ptr, call.order)
    for part in work.whole_rows:
        launch(part, written)
    if work.hubs is None:
        return
    like = call.query
    num_pieces = len(work.hubs.owner)
    num_hubs = len(work.hubs.node)
    of_pieces = SoftmaxResults(
        output=room_for(written.output, like, B, num_pieces, H, sizes.DV),
        alpha=written.alpha,
        kept=written.kept,
        sums=room_for(written.sums, like, B, num_pieces, H, sizes.F),
        peak=room_for(like, like, B, num_pieces, H),
        total=room_for(like, like, B, num_pieces, H),
    )
    launch(work.hubs.pieces, of_pieces)
    if written.sums is not None:
        sums_of_pieces = of_pieces._replace(output=of_pieces.sums)
        merge_hubs(work.hubs, sums_of_pieces, SoftmaxResults(written.sums), T)
    of_hubs = SoftmaxResults(
        written.output,
        written.lse,
        peak=room_for(like, like, B, num_hubs, H),
        total=room_for(like, like, B, num_hubs, H),
    )
    of_features = Projected(projected.weight, sums=written.sums)
    merge_hubs(work.hubs, of_pieces, of_hubs, T, of_features)
    if written.alpha is not None or written.kept is not None:
        pieces = work.hubs.pieces
        arguments = (call.rows(pieces), work.hubs.owner, of_hubs, written, E)
        launch_rows(triton_softmax.hub_weights, pieces, B, arguments, (num_hubs,), sizes)


def score_gradients(
    call: GpuCall,
    weights: Tensor,
    grad_output: Tensor | None,
    side: tuple[Tensor | None, Tensor | None],
    written: Gradients,
    projected: Projected,
    *,
    products: bool = True,
) -> None:
    """The gradients of products, targets and edges.

    ``side`` are the gradients of weights and lse. Without ``products`` scores are given, and so are
    weights in the caller's order.
    """
    B, T, E, H = call.sizes
    read, sizes, outer_output = call.for_kernels(
        projected, grad_output, products=products, sums=products
    )
    outer = OuterGradients(weights, None, *side, projected.sums)
    if products:
        outer = outer._replace(output=outer_output)
    blocks = -(-H // sizes.BH)
    of_heads = written.attr
    if blocks > 1:
        of_heads = room_for(written.attr, call.query, B, blocks, E, sizes.F)
    results = written._replace(attr=of_heads)

    def launch(work: Work, outer: OuterGradients, results: Gradients) -> None:
        arguments = (read._replace(outer=outer), call.rows(work), results, T, E)
        walk_rows(triton_sums.backward, work, B, arguments, call.numbers(), sizes)

    work = schedule(call.ptr, call.order)
    for part in work.whole_rows:
        launch(part, outer, results)
    if work.hubs is not None:
        pieces, owner, node, _ = work.hubs
        delta, of_hubs = (room_for(weights, call.query, B, n, H) for n in (len(owner), len(node)))
        query_acc = room_for(written.query, call.query, B, len(owner), H, sizes.D)
        attr_acc = room_for(written.queries, call.query, B, len(owner), H, sizes.F)
        launch(pieces, outer, Gradients(share=written.share, delta=delta))
        places = torch.arange(len(node), device=node.device)
        by_hub = work.hubs._replace(node=places)
        summed = SoftmaxResults(of_hubs.unsqueeze(-1))
        merge_hubs(by_hub, SoftmaxResults(delta.unsqueeze(-1)), summed, len(node))
        outer = outer._replace(delta=of_hubs.index_select(1, owner))
        launch(pieces, outer, results._replace(query=query_acc, queries=attr_acc))
        if attr_acc is not None:
            merge_hubs(work.hubs, SoftmaxResults(attr_acc), SoftmaxResults(written.queries), T)
        if query_acc is not None:
            of_features = Projected(projected.weight, sums=written.queries)
            summed = SoftmaxResults(written.query)
            merge_hubs(work.hubs, SoftmaxResults(query_acc), summed, T, of_features)
    if of_heads is not None and of_heads is not written.attr:
        assert written.attr is not None
        written.attr.copy_(of_heads.sum(1))


def merge_hubs(
    hubs: Hubs,
    sums: SoftmaxResults,
    written: SoftmaxResults,
    T: int,
    of_features: Projected = NO_FEATURES,
) -> None:
    """Merge the sums of pieces of hubs into their nodes, and add features by their weight."""
    like = sums.output
    D = 0
    if like is not None:
        D = like.shape[3]
    else:
        like = sums.peak
    assert like is not None
    sizes = sizes_of(like.dtype, like.shape[2], D=D)
    if of_features.sums is not None:
        sizes = sizes._replace(F=of_features.sums.shape[3])
    work = Work(LONG, hubs.node, hubs.first, hubs.first)
    arguments = (sums, of_features, hubs.node, hubs.first, written, T, len(hubs.owner))
    launch_rows(triton_softmax.merge, work, like.shape[0], arguments, (), sizes)


def edge_products(x: Tensor, y: Tensor, removed: Tensor | None, *layout: Tensor) -> Tensor:
    """``graphattn::edge_products``."""
    (ptr, index, edge, order), (B, _, H, D) = layout[:4], x.shape
    dtype = dtype_of_sums(x)
    out = x.new_empty(B, edge.numel(), H, dtype=dtype)
    align, nodes = strided(x, y)
    sizes = sizes_of(dtype, H, D=D)._replace(GROUP=H // max(1, y.shape[2]), ALIGN=align)
    for part in schedule(ptr, order).parts:
        arguments = (*nodes, KernelRows(*part[1:], index, edge), out, edge.numel())
        walk_rows(triton_sums.edge_products, part, B, arguments, (), sizes)
    return out


def edge_sum(
    weight: Tensor,
    x: Tensor,
    groups: int,
    to_sources: bool,
    removed: Tensor | None,
    *layout: Tensor,
) -> Tensor:
    """``graphattn::edge_sum``."""
    if to_sources:
        rows = layout[4:]
    else:
        rows = layout[:4]
    out = x.new_empty(
        x.shape[0], rows[0].numel() - 1, groups if to_sources else weight.shape[2], x.shape[-1]
    )
    sums_pass(weight, x, groups, to_sources, removed, rows, out)
    return out


def sums_pass(
    weight: Tensor,
    x: Tensor,
    groups: int,
    summed: bool,
    removed: Tensor | None,
    layout: tuple[Tensor | None, ...],
    out: Tensor,
) -> None:
    # a backward has a layout by source
    ptr, index, edge, order = (x for x in layout if x is not None)
    (B, E, heads), dtype, (N, H, D) = weight.shape, dtype_of_sums(x), out.shape[1:]
    if heads == 0 or x.shape[1] == 0:  # nothing to read
        out.zero_()
        return
    weight = weight.detach().contiguous()
    of_removed = None
    if removed is not None:
        batch_stride = 0
        if len(removed) > 1:
            batch_stride = E * heads
        removed = removed.expand(-1, -1, heads).contiguous().view(torch.uint8)
        of_removed = Strided(removed, batch_stride)
    align, (rows,) = strided(x)
    sizes = sizes_of(dtype, H, D=D)
    sizes = sizes._replace(GROUP=heads // max(1, groups), SUMMED=summed, ALIGN=align)

    def launch(work: Work, out: Tensor | None, acc: Tensor | None) -> None:
        of_work = KernelRows(*work[1:], index, edge)
        arguments = (weight, rows, of_removed, of_work, out, acc, E, N)
        walk_rows(triton_sums.edge_sums, work, B, arguments, (), sizes)

    work = schedule(ptr, order)
    for part in work.whole_rows:
        launch(part, out, None)
    if work.hubs is not None:
        acc = x.new_empty((B, len(work.hubs.owner), H, D), dtype=dtype)
        launch(work.hubs.pieces, None, acc)
        merge_hubs(work.hubs, SoftmaxResults(acc), SoftmaxResults(out), N)


def edge_weights(score: Tensor, *layout: Tensor) -> tuple[Tensor, Tensor]:
    """``graphattn::edge_weights``: a softmax whose scores are all bias."""
    alpha = torch.empty_like(score, memory_format=torch.contiguous_format)
    lse = score.new_empty(score.shape[0], layout[3].numel(), score.shape[2])
    call = _of_scores(score, layout, score.detach())
    softmax_pass(call, SoftmaxResults(lse=lse, alpha=alpha), Projected(), products=False)
    return alpha, lse


def edge_weights_backward(alpha: Tensor, grad: Tensor, grad_lse: Tensor, *layout: Tensor) -> Tensor:
    """``graphattn::edge_weights_backward``."""
    result = torch.empty_like(alpha)
    side = (grad.contiguous(), grad_lse.contiguous())
    call = _of_scores(alpha, layout, None)
    written = Gradients(bias=result, share=torch.empty_like(alpha))
    score_gradients(call, alpha.contiguous(), None, side, written, Projected(), products=False)
    return result


def _of_scores(score: Tensor, layout: tuple[Tensor, ...], bias: Tensor | None) -> GpuCall:
    """A call without nodes, whose scores are its bias."""
    nodes = score.new_empty(score.shape[0], layout[3].numel(), score.shape[2], 0)
    ptr, index, edge, order = layout
    return GpuCall(
        *(nodes, nodes, nodes),
        *(bias, None, None),
        *(ptr, index, edge, order),
        *(None, None, None, None),
        scale=1.0,
        softcap=0.0,
        dropout_p=0.0,
        edge_to="both",
        seed=None,
    )


def probe(device: torch.device) -> None:
    """Run the smallest call on a device; its errors are raised."""
    ptr = torch.tensor([0, 1], device=device)
    layout = (ptr, ptr[:1].int(), ptr[:1].int(), ptr[:1].int())
    alpha, _ = edge_weights(torch.zeros(1, 1, 1, device=device), *layout)
    if float(alpha) != 1.0:
        raise RuntimeError(f"one edge got a weight of {float(alpha)}")
