"""Dense twins: what a graph must reproduce, written down with torch and nothing else.

They share no code with the backends they judge, and import only torch and the standard library (a
test reads the imports). Everything is computed in the dtype of the inputs: in float64 a twin is the
judge, and in a narrower dtype it is "plain dense torch in the same dtype", whose error the backends
are held to.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class DenseResult(NamedTuple):
    """Output (..., T, H, D_v), weights (..., H, T, S) and lse (..., T, H)."""

    output: Tensor
    weights: Tensor
    lse: Tensor


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    score_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    multiplicity: Tensor | None = None,
    edge: Tensor | None = None,
    score: Callable[[Tensor, Tensor], Tensor] | None = None,
    normalize: Callable[[Tensor, Tensor], Tensor] | None = None,
    edge_to: str = "both",
    cap_bias: bool = False,
) -> DenseResult:
    r"""Masked attention over all T x S pairs, by softmax of scaled products or by other functions.

    .. math:: \mathrm{out}_t = \sum_{s : \mathrm{mask}_{ts}} \mathrm{softmax}_s\big(
        c \tanh(\mathrm{scale} \, q_t \cdot (k_s + e_{ts}) / c) + b_{ts} + \log m_{ts} \big) (v_s + e_{ts})

    A row without an edge, or whose scores are all -inf, gives output 0, lse -inf and gradients of
    exactly 0.

    Args:
        query: (..., T, H, D).
        key: (..., S, H_kv, D); head h of the query reads head ``h // (H / H_kv)``.
        value: (..., S, H_kv, D_v).
        mask: bool (T, S), True where the edge exists.
        score_bias: (T, S), (H or 1, T, S) or (..., H or 1, T, S), added to the score.
        scale: Factor of the product; D ** -0.5 if None.
        softcap: The c above; no tanh if None.
        multiplicity: (T, S), how often each edge is listed, whole numbers beside ``normalize``; 0
            removes it. All 1 if None.
        edge: (..., T, S, H_kv or H, D), edge features added to key and value (so D = D_v); to the
            value alone given a score.
        score: In place of the scaled product: scores (..., H, T, S) of query (..., T, H, D) and key
            (..., S, H, D).
        normalize: In place of softmax: weights (..., H, T, S) of scores and of the pairs that are
            there, bool.
        edge_to: "key" or "value" where edge features are added to key or value alone.
        cap_bias: Whether c bounds the sum of score and bias.

    Returns:
        The output, the weights and the log-sum-exp of the scores.

    Example:
        >>> x = torch.ones(2, 1, 1)
        >>> dense_attention(x, x, x, torch.tensor([[True, True], [False, False]])).output.flatten()
        tensor([1., 0.])
    """
    group = 1
    if key.shape[-2]:
        group = query.shape[-2] // key.shape[-2]
    key, value = (x.repeat_interleave(group, -2) for x in (key, value))
    if edge is not None:
        edge = edge.repeat_interleave(query.shape[-2] // max(1, edge.shape[-2]), -2)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    if score is not None:
        z = score(query, key)
    elif edge_to == "value":
        z = _product(query, key, None, scale)
    else:
        z = _product(query, key, edge, scale)
    there = mask
    if score_bias is not None:
        there = mask & (score_bias != -torch.inf)
        if cap_bias:
            z = z + score_bias.masked_fill(~there, 0.0)
            score_bias = None
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    if score_bias is not None:
        z = z + score_bias
    if multiplicity is not None and normalize is None:
        z = z + multiplicity.to(z.dtype).log()
    z = z.masked_fill(~there, -torch.inf)
    silent = (z == -torch.inf).all(-1, keepdim=True)
    # so that neither softmax nor its gradient meets a row of -inf
    plain = z.masked_fill(silent, 0.0)
    lse = torch.logsumexp(plain, -1).masked_fill(silent.squeeze(-1), -torch.inf)
    if normalize is None:
        weights = torch.softmax(plain, -1).masked_fill(silent, 0.0)
    elif multiplicity is None:
        weights = normalize(z, z != -torch.inf)
    else:  # every copy is a pair of its own, whose weights add up
        if multiplicity.numel():
            copies = max(1, int(multiplicity.max()))
        else:
            copies = 1
        apart = torch.cat(
            [z.masked_fill(multiplicity <= copy, -torch.inf) for copy in range(copies)], -1
        )
        weights = normalize(apart, apart != -torch.inf).unflatten(-1, (copies, z.shape[-1])).sum(-2)
    output = weights @ value.transpose(-3, -2)
    if edge is not None and edge_to != "key":
        output = output + torch.einsum("...hts,...tshd->...htd", weights, edge)
    return DenseResult(output.transpose(-3, -2), weights, lse.transpose(-2, -1))


def _product(query: Tensor, key: Tensor, edge: Tensor | None, scale: float) -> Tensor:
    """Scaled products (..., H, T, S) of queries with keys plus edge features."""
    q = query.transpose(-3, -2) * scale  # first, so that float16 does not overflow
    product = q @ key.transpose(-3, -2).transpose(-2, -1)
    if edge is None:
        return product
    return product + torch.einsum("...htd,...tshd->...hts", q, edge)


def turned(
    x: Tensor, positions: Tensor, base: float, rotary_dim: int, layout: str, num_axes: int
) -> Tensor:
    """Queries or keys (..., N, H, D), pairs of channels rotated by ``n base^(-2 i / d)``.

    Su et al. 2021, eq. 34.

    Pairs are complex numbers here. ``positions`` (..., N), or (..., N, A): each axis turns a share
    of the pairs.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    position = positions.to(dtype)
    if num_axes == 1:
        position = position[..., None]  # (..., N, A)
    channels = rotary_dim // num_axes
    speeds = [base ** (-2 * i / channels) for i in range(channels // 2)]
    speed = torch.tensor(speeds, dtype=dtype, device=x.device)
    # (..., N, 1, rotary_dim / 2)
    angle = (position.unsqueeze(-1) * speed).flatten(-2).unsqueeze(-2)
    rotated = x[..., :rotary_dim].to(dtype)
    rest = x[..., rotary_dim:]
    if layout == "half":
        pairs = rotated.unflatten(-1, (2, -1)).transpose(-2, -1)
    else:
        pairs = rotated.unflatten(-1, (-1, 2))
    complex_spun = torch.complex(*pairs.unbind(-1)) * torch.polar(torch.ones_like(angle), angle)
    spun = torch.stack((complex_spun.real, complex_spun.imag), -1)
    if layout == "half":
        spun = spun.transpose(-2, -1).flatten(-2)
    else:
        spun = spun.flatten(-2)
    return torch.cat((spun.to(x.dtype), rest), -1)


class DenseRootWeight(nn.Module):
    """The twin of a layer's skip connection: ``out + W x``, or a learned gate between the two."""

    def __init__(self, root: nn.Linear, gate: nn.Linear | None) -> None:
        super().__init__()
        self.root = root
        self.gate = gate

    def forward(self, out: Tensor, x: Tensor) -> Tensor:
        """The layer's output (..., T, C) from attention's (..., T, C) and x (..., T, C_in)."""
        skip = self.root(x)
        if self.gate is None:
            return out + skip
        share = torch.sigmoid(self.gate(torch.cat((out, skip, out - skip), -1)))
        return share * skip + (1 - share) * out


class DenseOutputBias(nn.Module):
    """The twin of a bias (C,) that a layer adds to what its heads gathered."""

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty_like(bias))

    def forward(self, out: Tensor, x: Tensor) -> Tensor:
        """(..., T, C) from the attention's output (..., T, C)."""
        return out + self.bias


class DenseGraphAttention(nn.Module):
    """The dense twin of ``graphattn.nn.GraphAttention``: its parameters, a mask for its graph.

    Args:
        state: The layer's ``state_dict()``; which parts the layer has is read off its names and
            shapes.
        num_heads: H, which no shape contains.

    Example:
        >>> from graphattn.nn import GraphAttention
        >>> layer = GraphAttention(6, num_heads=3)
        >>> twin = DenseGraphAttention(layer.state_dict(), num_heads=3)
        >>> twin(torch.ones(5, 6), torch.ones(5, 5, dtype=torch.bool)).shape
        torch.Size([5, 6])
    """

    def __init__(self, state: Mapping[str, Tensor], num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (_linear(state, f"{name}_proj") for name in "qkv")
        self.edge_proj = _linear_if_any(state, "edge_proj")
        self.gate_proj = _linear_if_any(state, "gate_proj")
        self.out_proj = _linear_if_any(state, "out_proj")
        self.skip: DenseRootWeight | DenseOutputBias | None = None
        if "skip.bias" in state:
            self.skip = DenseOutputBias(state["skip.bias"])
        if "skip.root.weight" in state:
            gate = _linear_if_any(state, "skip.gate")
            self.skip = DenseRootWeight(_linear(state, "skip.root"), gate)
        self.load_state_dict(state)  # also complains of parameters that have no place here

    @property
    def head_dim(self) -> int:
        """D."""
        return self.q_proj.out_features // self.num_heads

    def project(
        self,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor] | None = None,
        edge_attr: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Query (..., T, H, D), key, value (..., S, H_kv, D), edge (..., T, S, H_kv, D) or None."""
        if context is None:
            context = x
        if isinstance(context, tuple):
            key_input, value_input = context
        else:
            key_input = context
            value_input = context
        query = self.q_proj(x)
        key = self.k_proj(key_input)
        value = self.v_proj(value_input)
        edge = None
        if self.edge_proj is not None:
            edge = self.edge_proj(edge_attr).unflatten(-1, (-1, self.head_dim))
        query, key = (part.unflatten(-1, (-1, self.head_dim)) for part in (query, key))
        return query, key, value.unflatten(-1, (key.shape[-2], -1)), edge

    def finish(self, heads: Tensor, x: Tensor) -> Tensor:
        """The layer's output (..., T, C) from what the heads gathered (..., T, H, D)."""
        out = heads.flatten(-2)
        if self.gate_proj is not None:
            out = out * torch.sigmoid(self.gate_proj(x))
        if self.out_proj is not None:
            out = self.out_proj(out)
        if self.skip is None:
            return out
        return self.skip(out, x)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        context: Tensor | tuple[Tensor, Tensor] | None = None,
        edge_attr: Tensor | None = None,
        score_bias: Tensor | None = None,
        multiplicity: Tensor | None = None,
    ) -> Tensor:
        """The layer's output (..., T, C).

        Args:
            x: (..., T, qdim), the targets.
            mask: bool (T, S).
            context: (..., S, kdim), the sources, or a pair for keys and values; ``x`` if None.
            edge_attr: (..., T, S, F), the edge features laid out densely.
            score_bias: As in :func:`dense_attention`.
            multiplicity: As in :func:`dense_attention`.
        """
        query, key, value, edge = self.project(x, context, edge_attr)
        heads = dense_attention(
            query, key, value, mask, score_bias, multiplicity=multiplicity, edge=edge
        )
        return self.finish(heads.output, x)


def _linear_if_any(state: Mapping[str, Tensor], name: str) -> nn.Linear | None:
    if f"{name}.weight" in state:
        return _linear(state, name)
    return None


def _linear(state: Mapping[str, Tensor], name: str) -> nn.Linear:
    weight = state[f"{name}.weight"]
    out_dim, in_dim = weight.shape
    return nn.Linear(
        in_dim, out_dim, f"{name}.bias" in state, device=weight.device, dtype=weight.dtype
    )
