"""Ways to run attention that a user would not meet by default: compiled, by hand, of other
libraries.
"""

import os
import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from graphattn.bench.machine import too_large
from graphattn.bench.peers import FORWARD, MODES, SDPA, AttentionCall, Peer, PyG, all_peers
from graphattn.convert import to_block_mask

Forward = Callable[[], Tensor]


class PyGCompiled(PyG):
    """``TransformerConv`` under torch.compile, in one of its modes."""

    made: tuple[nn.Module, Callable[..., Tensor]] | None = None

    def __init__(self, name: str = "PyG compiled", mode: str | None = None) -> None:
        self.name, self.mode = name, mode

    def module(self, problem: AttentionCall) -> tuple[nn.Module, Callable[..., Tensor]]:
        if self.made is None:
            conv, _ = super().module(problem)
            self.made = conv, torch.compile(conv, dynamic=False, mode=self.mode)
        return self.made


def _gathered(query: Tensor, key: Tensor, value: Tensor, source: Tensor) -> Tensor:
    """(B, T, H, D) of query (B, T, H, D), key and value (B, S, H, D), and the sources (T, k) of
    each target.
    """
    score = (query.unsqueeze(2) * key[:, source]).sum(-1) * query.shape[-1] ** -0.5  # (B, T, k, H)
    return (score.softmax(2).unsqueeze(-1) * value[:, source]).sum(2)


class Gathered(nn.Module):
    """The same as a module, as exporters take it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, source: Tensor) -> Tensor:
        return _gathered(query, key, value, source)


class ByHand(Peer):
    """``k[idx]``, multiply, sum, softmax, ``v[idx]``, multiply, sum; torch.compile fuses what
    follows the gathers.
    """

    compiled: Callable[..., Tensor] | None = None

    def __init__(self, name: str = "gather by hand", mode: str | None = None) -> None:
        self.name, self.mode = name, mode

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        degree = problem.graph.in_degree
        if degree.numel() == 0 or int(degree.min()) == 0 or int(degree.min()) != int(degree.max()):
            return ["only where all targets have as many sources"]
        return too_large("keys and values of every edge", 2 * problem.edge_bytes, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, *x.shape[-3:])

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        source = self.sources(problem)
        if self.compiled is None:
            self.compiled = torch.compile(_gathered, dynamic=False, mode=self.mode)
        return partial(self.compiled, query, key, value, source)

    def sources(self, problem: AttentionCall) -> Tensor:
        """(T, k), the sources of each target."""
        graph = problem.graph
        order = torch.argsort(graph.target, stable=True)
        return graph.source[order].view(graph.num_targets, -1).to(problem.device)


class OnnxRuntime(ByHand):
    """The same, exported and run by ONNX Runtime, which has no backward."""

    def modes(self, problem: AttentionCall) -> tuple[str, ...]:
        return (FORWARD,)

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        if find_spec("onnxruntime") is None:
            return ["onnxruntime is not installed"]
        if problem.device != "cpu":
            return ["only on a CPU"]
        return super().reasons_against(problem)

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        import onnxruntime

        inputs = (query, key, value, self.sources(problem))
        program = torch.onnx.export(Gathered(), inputs, dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        model = program.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        names = [argument.name for argument in session.get_inputs()]
        feed = dict(zip(names, (x.numpy() for x in inputs), strict=True))
        return lambda: torch.from_numpy(session.run(None, feed)[0])


class JAX(Peer):
    """``jax.ops.segment_max`` and ``segment_sum`` over sorted edges, under ``jax.jit``."""

    name = "JAX"

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        if find_spec("jax") is None:
            return ["jax is not installed"]
        if problem.device != "cpu":
            return ["only on a CPU"]
        return too_large("its (E, H, D) arrays", 8 * problem.edge_bytes, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, *x.shape[-2:])  # (B * N, H, D)

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        if torch.get_num_threads() == 1:
            os.sched_setaffinity(
                0, list(os.sched_getaffinity(0))[:1]
            )  # its pool has a thread a core
        import jax

        attend = self.attention(problem)
        run = jax.jit(attend)
        record = jax.jit(partial(jax.vjp, attend))
        pull = jax.jit(lambda recorded, grad: recorded(grad))
        leaves = (query, key, value)

        def forward() -> Tensor:
            if torch.is_grad_enabled():
                return _OfJAX.apply(record, pull, *leaves)
            return torch.from_dlpack(run(*map(_in_jax, leaves)))

        return forward

    def attention(self, problem: AttentionCall) -> Callable[..., Any]:
        """The function of query, key and value to be compiled."""
        import jax
        import jax.numpy as jnp

        graph, scale = problem.graph, problem.head_dim**-0.5
        order = torch.argsort(graph.target, stable=True)
        source, target = (
            jnp.asarray(_nodes_of_batch(nodes[order], size, problem.batch).numpy())
            for nodes, size in (
                (graph.source, graph.num_sources),
                (graph.target, graph.num_targets),
            )
        )
        size = problem.batch * graph.num_targets
        segments = partial(dict, segment_ids=target, num_segments=size, indices_are_sorted=True)

        def attend(query: Any, key: Any, value: Any) -> Any:
            score = (query[target] * key[source]).sum(-1) * scale  # (E, H)
            peak = jax.lax.stop_gradient(jax.ops.segment_max(score, **segments()))
            weight = jnp.exp(score - peak[target])
            total = jax.ops.segment_sum(weight, **segments())
            mixed = jax.ops.segment_sum(weight[..., None] * value[source], **segments())
            return mixed / jnp.maximum(total, 1e-30)[..., None]

        return attend


class JAXGather(JAX):
    """``k[idx]``, ``v[idx]`` and einsums, under ``jax.jit``."""

    name = "JAX gather"

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        return super().reasons_against(problem) or ByHand().reasons_against(problem)

    def attention(self, problem: AttentionCall) -> Callable[..., Any]:
        import jax
        import jax.numpy as jnp

        sources = ByHand().sources(problem)
        steps = torch.arange(problem.batch)[:, None, None] * problem.graph.num_sources
        source = jnp.asarray((sources + steps).flatten(0, 1).numpy())  # (B * T, k)
        scale = problem.head_dim**-0.5

        def attend(query: Any, key: Any, value: Any) -> Any:
            score = jnp.einsum("thd,tkhd->tkh", query, key[source]) * scale
            return jnp.einsum("tkh,tkhd->thd", jax.nn.softmax(score, 1), value[source])

        return attend


class _OfJAX(torch.autograd.Function):
    """A jitted function in torch's graph of gradients; memory is shared by DLPack."""

    @staticmethod
    def forward(ctx: Any, record: Any, pull: Any, *leaves: Tensor) -> Tensor:
        output, ctx.recorded = record(*map(_in_jax, leaves))
        ctx.pull = pull
        return torch.from_dlpack(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        grads = ctx.pull(ctx.recorded, _in_jax(grad.contiguous()))
        return None, None, *map(torch.from_dlpack, grads)


def _in_jax(x: Tensor) -> Any:
    import jax

    return jax.dlpack.from_dlpack(x.detach())


def _nodes_of_batch(nodes: Tensor, size: int, batch: int) -> Tensor:
    """The nodes of edges of ``batch`` graphs side by side."""
    return torch.cat([nodes + i * size for i in range(batch)])


class DGL(Peer):
    """``u_dot_v``, ``edge_softmax``, ``u_mul_e_sum`` of DGL; a batch is a disjoint union."""

    name = "DGL"

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        return [] if find_spec("dgl") else ["dgl is not installed"]

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, *x.shape[-2:])  # (B * N, H, D)

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        import dgl

        graph = problem.graph
        source, target = (
            _nodes_of_batch(nodes, size, problem.batch).to(problem.device)
            for nodes, size in (
                (graph.source, graph.num_sources),
                (graph.target, graph.num_targets),
            )
        )
        sizes = {"s": problem.batch * graph.num_sources, "t": problem.batch * graph.num_targets}
        edges = dgl.heterograph({("s", "read by", "t"): (source, target)}, num_nodes_dict=sizes)
        edges.create_formats_()
        scale = problem.head_dim**-0.5

        def forward() -> Tensor:
            score = dgl.ops.u_dot_v(edges, key, query * scale)
            return dgl.ops.u_mul_e_sum(edges, value, dgl.ops.edge_softmax(edges, score))

        return forward


class Flex(SDPA):
    """FlexAttention, compiled, with a block mask made from exact counts
    (``graphattn.convert.to_block_mask``).
    """

    name = "FlexAttention"
    compiled: Callable[..., Tensor] | None = None

    def modes(self, problem: AttentionCall) -> tuple[str, ...]:
        return (FORWARD,) if problem.device == "cpu" else MODES  # it has no backward pass on a CPU

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        return (
            ["a mask function cannot count repeated edges"]
            if problem.graph.has_repeated_edges
            else []
        )

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        from torch.nn.attention.flex_attention import flex_attention

        call = self.compiled = self.compiled or torch.compile(flex_attention, dynamic=False)
        block_mask = to_block_mask(problem.graph)
        return lambda: call(query, key, value, block_mask=block_mask)


_PAIR = r"\((\d+), (\d+)\)"
_CELLS = re.compile(rf"window_partition\({_PAIR}, {_PAIR}(?:, shift={_PAIR})?\)")


class Swin(Peer):
    """A Swin layer: roll, partition, SDPA with the usual mask of -100 between parts that the roll
    joined, and back.
    """

    name = "Swin by hand"

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        known = _CELLS.fullmatch(problem.graph.name or "")
        return (
            []
            if known
            else ["only for a window_partition of a (height, width) grid without padding"]
        )

    def prepare(self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        match = _CELLS.fullmatch(problem.graph.name or "")
        assert match is not None  # reasons_against looked
        height, width, h, w, dy, dx = (int(part or 0) for part in match.groups())
        heads, D, shifted = problem.heads, problem.head_dim, dy or dx

        def cells(x: Tensor) -> Tensor:
            """(B * cells, H, h * w, D) from (B, height * width, H, D)."""
            x = x.view(-1, height, width, heads, D)
            x = torch.roll(x, (-dy, -dx), (1, 2)) if shifted else x
            x = x.view(-1, height // h, h, width // w, w, heads, D)
            return x.permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, heads, h * w, D)

        mask = None
        if shifted:
            region = torch.zeros(height, width, device=query.device)
            for axis, (length, side, moved) in enumerate(((height, h, dy), (width, w, dx))):
                place = torch.arange(length, device=query.device)
                part = (place >= length - side).long() + (place >= length - moved).long()
                region += (part[:, None] if axis == 0 else part) * 3**axis
            region = (
                region.view(height // h, h, width // w, w).transpose(1, 2).reshape(-1, 1, h * w)
            )
            apart = region[..., None, :] != region[..., :, None]
            mask = torch.where(apart, -100.0, 0.0).to(query.dtype).repeat(problem.batch, 1, 1, 1)

        def forward() -> Tensor:
            out = scaled_dot_product_attention(cells(query), cells(key), cells(value), mask)
            out = out.view(-1, height // h, width // w, heads, h, w, D).permute(0, 1, 4, 2, 5, 3, 6)
            out = out.reshape(-1, height, width, heads, D)
            return torch.roll(out, (dy, dx), (1, 2)) if shifted else out

        return forward


_OTHERS = (
    PyGCompiled(),
    PyGCompiled("PyG max-autotune", "max-autotune"),
    ByHand(),
    ByHand("gather max-autotune", "max-autotune"),
    OnnxRuntime("gather by ONNX Runtime"),
    JAX(),
    JAXGather(),
    DGL(),
    Flex(),
    Swin(),
)
#: Every peer by name, those of ``graphattn bench`` first.
PEERS = all_peers() | {peer.name: peer for peer in _OTHERS}
