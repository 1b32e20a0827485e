"""The block kernel as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype. ``levels`` and ``totals`` (B, H, blocks of targets), float32 or wider, are
the peak of each target's products, of tanh under a softcap, and the sum of exponentials beside it. The tensors of
a plan are those of :class:`graphattn.plans.pieces.Pieces` and :class:`~graphattn.plans.pieces.Cuts`.
The bias of an edge is row ``target_places[t] - source_places[s]`` of ``table`` (V, H), which has
one for every pair; the places are int32 (T,) and (S,). With ``thresholds`` (T,), in the dtype of sums,
weights are not softmax but ``sigmoid(score - threshold)``, and totals are 1.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...graph.modes import lru_cache, plain_operations_only, without_autocast
from ...plans.pieces import VECTORS
from ..arrays import SMALLEST, Kinds, NodeRows, dtype_of_sums, empty, room
from ..llvm.threads import CHUNKS_PER_THREAD, LARGE, share, threads_for
from ..modes import are_batched, nothing_watches
from ..plain.second_derivatives import gradients_of_definition
from .definition import BlockCall, plain
from .exponents import exponents, unit_of_levels

_PLAN = """int lanes, Tensor targets, Tensor sources, Tensor ptr, Tensor pieces, Tensor masks, Tensor first,
    Tensor span_ptr, Tensor spans, Tensor place, int hull, int work"""
_OPERANDS = f"""Tensor query, Tensor key, Tensor value, Tensor? table, {_PLAN},
    Tensor? target_places, Tensor? source_places, Tensor? thresholds, float scale, float softcap"""
LINE = 64  # bytes


#: Operands of the kernels without a table and without thresholds.
_PLAIN = dict.fromkeys(
    ("table", "entries", "target_places", "source_places", "first_places", "thresholds"), None
)


def _biases(call: BlockCall) -> dict[str, Any]:
    """The table (H, entries) of a call, places and thresholds as operands of the kernels.

    They are in units of products and in the order of blocks, which may end after the last target.
    """
    operands: dict[str, Any] = _PLAIN
    spare = call.state_shape[2] - call.targets.shape[0]
    if call.thresholds is not None:
        unit = unit_of_levels(call.scale, call.softcap)
        levels = call.thresholds.index_select(0, call.targets) / unit
        operands = operands | {"thresholds": torch.nn.functional.pad(levels, (0, spare))}
    if call.table is None:
        return operands
    size = VECTORS * call.lanes
    places = call.target_places.index_select(0, call.targets)
    places = torch.cat((places, places[-1:] + torch.arange(1, spare + 1)))
    places = places.view(-1, size)
    first = places[:, :1]
    in_order = first + torch.arange(size)
    has_gaps = (places != in_order).any(1)
    rows = call.table.detach().t() / unit_of_levels(call.scale, 0.0)
    entries = -(-(rows.shape[1] + size) // size) * size
    return operands | {
        "table": torch.nn.functional.pad(rows, (0, entries - rows.shape[1])).contiguous(),
        "entries": entries,
        "target_places": places.int(),
        "source_places": call.source_places.index_select(0, call.sources),
        "first_places": torch.where(has_gaps, -1, first[:, 0]),
    }


def _aligned(dtype: torch.dtype, *shape: int) -> Tensor:
    """Uninitialised memory that begins at a line, from cached memory if it is large."""
    size = math.prod(shape) * dtype.itemsize
    if size < SMALLEST:
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = room(np.dtype(np.uint8), size + LINE)
    start = -memory.data_ptr() % LINE
    return memory[start : start + size].view(dtype).view(shape)


def _nodes(x: Tensor) -> NodeRows:
    """(B, N, H, D) for the kernels, copied if rows are not contiguous."""
    if x.is_neg() or x.stride(-1) != 1:
        x = x.detach().resolve_neg().contiguous()
    size = x.element_size()
    batch, node, head, _ = x.stride()
    return NodeRows(x, batch * size, node * size, head * size)


@lru_cache(None)
def _table(part: str, sums: torch.dtype, **options: bool) -> Tensor:
    """Addresses of a part for one, two and three vectors."""
    vectors = range(1, VECTORS + 1)
    return torch.tensor([_address(part, sums, sums, vectors=v, **options) for v in vectors])


@lru_cache(None)
def _address(part: str, nodes: torch.dtype, sums: torch.dtype, **options: Any) -> int:
    """The address of a part, a function of :mod:`.parts`."""
    from ..llvm.native import address_of
    from . import parts

    return address_of(getattr(parts, part), parts.Part(sums, nodes, **options))


@lru_cache(None)
def _stride(width: int, lanes: int) -> int:
    """Numbers of a packed row: whole vectors and tiles."""
    whole = max(lanes, 8)
    return -(-width // whole) * whole


class _Shapes(NamedTuple):
    """Sizes on which a kernel's code and the memory of its threads depend, beside a plan."""

    sums: torch.dtype
    nodes: torch.dtype
    lanes: int
    heads: int
    kv_heads: int
    cuts: int
    num_targets: int
    num_blocks: int
    depth: int
    width: int
    hull: int
    scale: float
    softcap: float
    biased: bool

    @classmethod
    def of(cls, call: BlockCall) -> "_Shapes":
        """The shapes of a call."""
        query = call.query
        _, T, H, D = query.shape
        _, _, kv_heads, width = call.value.shape
        return cls(
            dtype_of_sums(query), query.dtype, call.lanes, H, kv_heads, call.first.shape[0] - 1,
            T, call.ptr.shape[0] - 1, D, width, call.hull, call.scale, call.softcap,
            call.table is not None,
        )  # fmt: skip


class _Begun(NamedTuple):
    """A kernel with the operands of shapes, and the bytes that a thread needs."""

    kernel: Any
    space: int

    def bind(self, call: BlockCall, biases: dict[str, Any], **operands: Any) -> Any:
        """The kernel with all operands."""
        return self.kernel.bind(
            targets=call.targets,
            sources=call.sources,
            ptr=call.ptr,
            pieces=call.pieces,
            masks=call.masks,
            first=call.first,
            span_ptr=call.span_ptr,
            spans=call.spans,
            **biases,
            **operands,
        )

    def memory(self) -> tuple[Tensor]:
        """The memory of one thread."""
        return (_aligned(torch.uint8, self.space),)


@lru_cache(256)
def _begun(kernel: str, shapes: _Shapes, masked: bool = False) -> _Begun:
    """A kernel of :mod:`.cpu`; ``masked`` if what masks leave out may be NaN."""
    from ..llvm.native import native
    from . import cpu

    dtype = shapes.sums
    kinds = Kinds(dtype, torch.int32, dtype, 0)
    strides = (_stride(shapes.depth, shapes.lanes), _stride(shapes.width, shapes.lanes))
    code = native(getattr(cpu, kernel), kinds).begin(
        heads=shapes.heads,
        group=shapes.heads // shapes.kv_heads,
        kv_heads=shapes.kv_heads,
        cuts=shapes.cuts,
        num_targets=shapes.num_targets,
        num_blocks=shapes.num_blocks,
        depth=shapes.depth,
        width=shapes.width,
        stride=strides[0],
        value_stride=strides[1],
        hull=shapes.hull,
        scale=shapes.scale,
        **exponents(shapes.scale, shapes.softcap),
        scores=_table("scores", dtype, biased=shapes.biased),
        sums=_table("sums", dtype, masked=masked),
        pack_rows=_address("pack_rows", shapes.nodes, dtype),
        pack_targets=_address("pack_targets", shapes.nodes, dtype),
        unpack_targets=_address("unpack_targets", shapes.nodes, dtype),
    )
    return _Begun(code, cpu.space_bytes(dtype.itemsize, shapes.lanes, strides, shapes.hull))


def _row_memory(dtype: torch.dtype, *shape: int) -> tuple[Tensor]:
    return (_aligned(dtype, *shape),)


def _run(kernel: Any, tasks: int, work: float, memory: Any) -> None:
    threads = threads_for(int(work))
    count = int(work) // LARGE + 1
    if threads > 1:
        count = max(count, threads * CHUNKS_PER_THREAD)
    count = min(count, tasks)
    share([tasks * i // count for i in range(count + 1)], int(work), kernel.run, memory)


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, levels and totals."""
    call = BlockCall(*arguments)
    B, T, H, _ = call.query.shape
    dtype = call.sum_dtype
    output = empty(call.query.dtype, B, T, H, call.value.shape[3])
    levels, totals = (empty(dtype, *call.state_shape) for _ in range(2))
    if output.numel() == 0:
        return output, levels, totals
    broken = torch.zeros(2, dtype=torch.bool, device="cpu")
    biases = _biases(call)
    work = B * H * call.work * (call.query.shape[3] + call.value.shape[3])
    for masked in (False, True):
        begun = _begun("BlockForward", _Shapes.of(call), masked)
        kernel = begun.bind(
            call,
            biases,
            broken=broken,
            query=_nodes(call.query),
            key=_nodes(call.key),
            value=_nodes(call.value),
            out=_nodes(output),
            levels=levels,
            totals=totals,
            weigh=_table("weigh", dtype, sigmoid=call.thresholds is not None),
        )
        _run(kernel, call.tasks, work, begun.memory)
        if call.masks.numel() == 0 or not broken[0]:
            break
    return output, levels, totals


block_attention = torch.library.custom_op(
    "graphattn::block_attention",
    _forward,
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}) -> (Tensor, Tensor, Tensor)",
)


@block_attention.register_fake
def _(*arguments):
    call = BlockCall(*arguments)
    output = call.query.new_empty(*call.query.shape[:3], call.value.shape[3])
    state = (call.query.new_empty(call.state_shape, dtype=call.sum_dtype) for _ in range(2))
    return output, *state


def _gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, and of the table, which is empty if not needed."""
    *operands, output, levels, totals, grad_output, grad_lse, of_table = arguments
    call = BlockCall(*operands)
    grads = (
        empty(call.query.dtype, *call.query.shape),
        empty(call.key.dtype, *call.key.shape),
        empty(call.value.dtype, *call.value.shape),
        _empty_of_table(call),
    )
    B, _, H, D = call.query.shape
    S, kv_heads, width = call.value.shape[1:]
    dtype = call.sum_dtype
    if output.numel() == 0:
        for grad in grads:
            grad.zero_()
        return grads
    broken = torch.zeros(2, dtype=torch.bool, device="cpu")
    places = int(call.place[-1])
    strides = (_stride(D, call.lanes), _stride(width, call.lanes))
    key_parts, value_parts = (
        _aligned(dtype, B * kv_heads, max(1, places), stride) for stride in strides
    )
    biases = _biases(call)
    table_parts = None
    if of_table:
        table_parts = _aligned(dtype, call.tasks, H // kv_heads, biases["entries"])
    work = 3 * B * H * call.work * (D + width)
    shapes = _Shapes.of(call)
    for masked in (False, True):
        table_sums = None
        if of_table:
            table_sums = _table("table_sums", dtype, masked=masked)
        begun = _begun("BlockBackward", shapes, masked)
        kernel = begun.bind(
            call,
            biases,
            broken=broken,
            query=_nodes(call.query),
            key=_nodes(call.key),
            value=_nodes(call.value),
            out=_nodes(output),
            grad_out=_nodes(grad_output),
            grad_lse=grad_lse,
            levels=levels,
            totals=totals,
            grad_query=_nodes(grads[0]),
            key_parts=key_parts,
            value_parts=value_parts,
            table_parts=table_parts,
            place=call.place,
            slopes=_table("slopes", dtype, sigmoid=call.thresholds is not None),
            outer=_table("outer", dtype, masked=masked),
            table_sums=table_sums,
        )
        _run(kernel, call.tasks, work, begun.memory)
        if call.masks.numel() == 0 or not broken[0]:
            break
    for numbers, size, grad in ((key_parts, D, grads[1]), (value_parts, width, grads[2])):
        begun = _begun("BlockGradients", shapes._replace(depth=size, cuts=1))
        joined = begun.bind(
            call,
            _PLAIN,
            broken=broken,
            joined=call.first.shape[0] - 1,
            parts=numbers,
            place=call.place,
            out=_nodes(grad),
            num_sources=S,
            unpack_rows=_address("unpack_rows", call.query.dtype, dtype),
        )
        memory = partial(_row_memory, dtype, S, numbers.shape[-1])
        _run(joined, B * kv_heads, numbers.numel(), memory)
    if table_parts is not None:
        _add_tables(table_parts, B, grads[3])
    return grads


def _empty_of_table(call: BlockCall) -> Tensor:
    """Memory for the gradient of the table, (V, H), or nothing."""
    if call.table is None:
        return call.query.new_empty(0, dtype=call.sum_dtype)
    return torch.empty_like(call.table, memory_format=torch.contiguous_format)


def _add_tables(parts: Tensor, batch: int, to: Tensor) -> None:
    """The sum (V, H) of (B, H_kv, cuts, group, entries) over examples and cuts, in their order
    whatever the number of threads.
    """
    of_cuts = parts.unflatten(0, (batch, to.shape[1] // parts.shape[1], -1)).transpose(1, 2)
    total = parts.new_zeros(of_cuts.shape[2:], dtype=torch.float64)
    for part in of_cuts.flatten(0, 1):
        total += part
    to.copy_(total.flatten(0, 1)[:, : to.shape[0]].t())


block_attention_backward = torch.library.custom_op(
    "graphattn::block_attention_backward",
    _gradients,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor output, Tensor levels, Tensor totals, Tensor grad_output, "
        "Tensor? grad_lse, bool of_table) -> (Tensor, Tensor, Tensor, Tensor)"
    ),
)


@block_attention_backward.register_fake
def _(*arguments):
    call = BlockCall(*arguments[: len(BlockCall._fields)])
    grads = (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    )
    return *grads, _empty_of_table(call)


_NUMBERS = ("lanes", "hull", "work", "scale", "softcap")
_TENSORS = tuple(name for name in BlockCall._fields if name not in _NUMBERS)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    call = BlockCall(*inputs)
    ctx.save_for_backward(*(getattr(call, name) for name in _TENSORS), *output)
    ctx.numbers = {name: getattr(call, name) for name in _NUMBERS}
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *tensors, output, levels, totals = ctx.saved_tensors
    call = BlockCall(**dict(zip(_TENSORS, tensors, strict=True)), **ctx.numbers)
    absent = [None] * (len(BlockCall._fields) - 4)
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        with without_autocast(call.query.device.type):
            return *gradients_of_definition(plain, call[:4], call[4:], grads), *absent
    grad_output, _, grad_totals = grads
    # lse = unit * level + log(total), of which the total alone has a derivative here
    grad_lse = None
    if grad_totals is not None:
        grad_lse = (grad_totals * totals).contiguous()
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    run: Any = block_attention_backward
    if nothing_watches(call.query, grad_output):
        run = _gradients
    of_table = ctx.needs_input_grad[3]
    *of_nodes, grad_table = run(*call, output, levels, totals, grad_output, grad_lse, of_table)
    if not of_table:
        grad_table = None
    return *of_nodes, grad_table, *absent


block_attention.register_autograd(_backward, setup_context=_keep)


class BlockAttention(torch.autograd.Function):
    """The operator as a plain autograd function."""

    forward = staticmethod(_forward)
    setup_context = staticmethod(_keep)
    backward = staticmethod(_backward)


def attend(*arguments: Any, tracked: bool) -> tuple[Tensor, Tensor, Tensor]:
    """``block_attention``, without torch's dispatcher if no mode is active."""
    outputs: tuple[Tensor, Tensor, Tensor]
    if plain_operations_only():
        outputs = plain(*arguments)
    elif not nothing_watches(*arguments[:4]):
        outputs = block_attention(*arguments)
    elif tracked:
        outputs = BlockAttention.apply(*arguments)
    else:
        outputs = _forward(*arguments)
    return outputs


def log_sums(levels: Tensor, totals: Tensor, targets: Tensor, unit: float) -> Tensor:
    """lse (B, T, H); -inf for a target without an edge."""
    count = targets.shape[0]
    total = totals[..., :count]
    is_empty = total == 0
    log_sum = levels[..., :count] * unit + torch.where(is_empty, 1.0, total).log()
    log_sum = log_sum.masked_fill(is_empty, -torch.inf)
    return log_sum.index_select(-1, targets.long().argsort()).transpose(-2, -1)
