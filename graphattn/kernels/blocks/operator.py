"""The block kernel as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype. ``levels`` and ``totals`` (B, H, blocks of targets), float32 or wider, are
the peak of each target's products, of tanh under a softcap, and the sum of exponentials beside it. The tensors of
a plan are those of :class:`graphattn.plans.pieces.Pieces` and :class:`~graphattn.plans.pieces.Cuts`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...graph.modes import lru_cache, plain_operations_only, without_autocast
from ..arrays import SMALLEST, NodeRows, dtype_of_sums, empty, room
from ..llvm.threads import CHUNKS_PER_THREAD, LARGE, SMALL, share, threads_for
from ..modes import are_batched, nothing_watches
from ..plain.second_derivatives import gradients_of_definition
from .definition import plain
from .exponents import exponents

_PLAN = """int lanes, Tensor targets, Tensor sources, Tensor ptr, Tensor pieces, Tensor masks, Tensor first,
    Tensor span_ptr, Tensor spans, Tensor place, int hull, int work"""
_OPERANDS = f"Tensor query, Tensor key, Tensor value, {_PLAN}, float scale, float softcap"
LINE = 64  # bytes


class Call(NamedTuple):
    """The operands that the operator and its backward share, in the order of their schemas."""

    query: Tensor
    key: Tensor
    value: Tensor
    lanes: int
    targets: Tensor
    sources: Tensor
    ptr: Tensor
    pieces: Tensor
    masks: Tensor
    first: Tensor
    span_ptr: Tensor
    spans: Tensor
    place: Tensor
    hull: int
    work: int
    scale: float
    softcap: float

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums."""
        return dtype_of_sums(self.query)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """The shape of levels and totals."""
        B, _, H, _ = self.query.shape
        return B, H, (self.ptr.shape[0] - 1) * 3 * self.lanes

    @property
    def tasks(self) -> int:
        """Cuts of all batch elements and heads of keys."""
        return self.key.shape[0] * self.key.shape[2] * (self.first.shape[0] - 1)


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


class _Functions(NamedTuple):
    """Addresses of the parts for a dtype; tables are for one, two and three vectors."""

    scores: Tensor
    sums: Tensor
    weigh: Tensor
    slopes: Tensor
    outer: Tensor


@lru_cache(None)
def _table(part: Any, sums: torch.dtype, masked: bool = False) -> Tensor:
    from ..llvm.native import address_of
    from .parts import VECTORS, Part

    kinds = [Part(sums, sums, v, masked) for v in range(1, VECTORS + 1)]
    return torch.tensor([address_of(part, kind) for kind in kinds])


@lru_cache(None)
def _stride(width: int, lanes: int) -> int:
    """Numbers of a packed row: whole vectors and tiles."""
    whole = max(lanes, 8)
    return -(-width // whole) * whole


def _operands(call: Call, masked: bool, broken: Tensor) -> dict[str, Any]:
    """Operands of every kernel over blocks."""
    from ..llvm.native import address_of
    from . import parts

    _, T, H, D = call.query.shape
    kv_heads, width = call.value.shape[2:]
    dtype = call.sum_dtype
    nodes = parts.Part(dtype, call.query.dtype)
    return {
        "heads": H,
        "group": H // kv_heads,
        "kv_heads": kv_heads,
        "cuts": call.first.shape[0] - 1,
        "num_targets": T,
        "num_blocks": call.ptr.shape[0] - 1,
        "depth": D,
        "width": width,
        "stride": _stride(D, call.lanes),
        "value_stride": _stride(width, call.lanes),
        "hull": call.hull,
        "targets": call.targets,
        "sources": call.sources,
        "ptr": call.ptr,
        "pieces": call.pieces,
        "masks": call.masks,
        "first": call.first,
        "span_ptr": call.span_ptr,
        "spans": call.spans,
        "broken": broken,
        "scale": call.scale,
        **exponents(call.scale, call.softcap),
        "scores": _table(parts.scores, dtype),
        "sums": _table(parts.sums, dtype, masked),
        "pack_rows": address_of(parts.pack_rows, nodes),
        "pack_targets": address_of(parts.pack_targets, nodes),
        "unpack_targets": address_of(parts.unpack_targets, nodes),
    }


def _kinds(call: Call) -> Any:
    from ..arrays import Kinds

    return Kinds(call.sum_dtype, torch.int32, call.sum_dtype, 0)


def _space(call: Call, kernel: str) -> Any:
    """A function that gives the memory of one thread."""
    from ..llvm.native import Target
    from . import cpu
    from .parts import Shape

    target = Target.of_host()
    itemsize = call.sum_dtype.itemsize
    shape = Shape.of(target.vector_bytes, target.registers, itemsize)
    stride = _stride(call.query.shape[3], call.lanes)
    value_stride = _stride(call.value.shape[3], call.lanes)
    size = cpu.space_bytes(shape, itemsize, stride, value_stride, call.hull)
    if kernel == "joined":
        size = call.key.shape[1] * max(stride, value_stride) * itemsize
    return lambda: (_aligned(torch.uint8, size),)


def _run(kernel: Any, tasks: int, work: float, space: Any) -> None:
    count = max(threads_for(int(work)) * CHUNKS_PER_THREAD, int(work) // LARGE)
    if work < SMALL:
        count = 1
    count = min(count, tasks)
    share([tasks * i // count for i in range(count + 1)], int(work), kernel.run, space)


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, levels and totals."""
    from ..llvm.native import native
    from . import parts
    from .cpu import BlockForward

    call = Call(*arguments)
    B, T, H, _ = call.query.shape
    dtype = call.sum_dtype
    output = empty(call.query.dtype, B, T, H, call.value.shape[3])
    levels, totals = (empty(dtype, *call.state_shape) for _ in range(2))
    if output.numel() == 0:
        return output, levels, totals
    broken = torch.zeros(2, dtype=torch.bool, device="cpu")
    work = B * H * call.work * (call.query.shape[3] + call.value.shape[3])
    for masked in (False, True):
        kernel = native(BlockForward, _kinds(call)).bind(
            **_operands(call, masked, broken),
            query=_nodes(call.query),
            key=_nodes(call.key),
            value=_nodes(call.value),
            out=_nodes(output),
            levels=levels,
            totals=totals,
            weigh=_table(parts.weigh, dtype),
        )
        _run(kernel, call.tasks, work, _space(call, "forward"))
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
    call = Call(*arguments)
    output = call.query.new_empty(*call.query.shape[:3], call.value.shape[3])
    state = (call.query.new_empty(call.state_shape, dtype=call.sum_dtype) for _ in range(2))
    return output, *state


def _gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    from ..llvm.native import address_of, native
    from . import parts
    from .cpu import BlockBackward, BlockGradients

    *operands, output, levels, totals, grad_output, grad_lse = arguments
    call = Call(*operands)
    grads = (
        empty(call.query.dtype, *call.query.shape),
        empty(call.key.dtype, *call.key.shape),
        empty(call.value.dtype, *call.value.shape),
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
    work = 3 * B * H * call.work * (D + width)
    common = _operands(call, False, broken)
    for masked in (False, True):
        kernel = native(BlockBackward, _kinds(call)).bind(
            **common | {"sums": _table(parts.sums, dtype, masked)},
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
            place=call.place,
            slopes=_table(parts.slopes, dtype),
            outer=_table(parts.outer, dtype, masked),
        )
        _run(kernel, call.tasks, work, _space(call, "backward"))
        if call.masks.numel() == 0 or not broken[0]:
            break
    for numbers, size, stride, grad in (
        (key_parts, D, strides[0], grads[1]),
        (value_parts, width, strides[1], grads[2]),
    ):
        joined = native(BlockGradients, _kinds(call)).bind(
            **common | {"depth": size, "stride": stride, "cuts": 1},
            joined=call.first.shape[0] - 1,
            parts=numbers,
            place=call.place,
            out=_nodes(grad),
            num_sources=S,
            unpack_rows=address_of(parts.unpack_rows, parts.Part(dtype, call.query.dtype)),
        )
        _run(joined, B * kv_heads, numbers.numel(), _space(call, "joined"))
    return grads


block_attention_backward = torch.library.custom_op(
    "graphattn::block_attention_backward",
    _gradients,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor output, Tensor levels, Tensor totals, Tensor grad_output, "
        "Tensor? grad_lse) -> (Tensor, Tensor, Tensor)"
    ),
)


@block_attention_backward.register_fake
def _(*arguments):
    call = Call(*arguments[: len(Call._fields)])
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    )


_NUMBERS = ("lanes", "hull", "work", "scale", "softcap")
_TENSORS = tuple(name for name in Call._fields if name not in _NUMBERS)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    call = Call(*inputs)
    ctx.save_for_backward(*(getattr(call, name) for name in _TENSORS), *output)
    ctx.numbers = {name: getattr(call, name) for name in _NUMBERS}
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *tensors, output, levels, totals = ctx.saved_tensors
    call = Call(**dict(zip(_TENSORS, tensors, strict=True)), **ctx.numbers)
    absent = [None] * (len(Call._fields) - 3)
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        with without_autocast(call.query.device.type):
            return *gradients_of_definition(plain, call[:3], call[3:], grads), *absent
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
    return *run(*call, output, levels, totals, grad_output, grad_lse), *absent


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
    elif not nothing_watches(*arguments[:3]):
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
