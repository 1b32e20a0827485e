"""Cases that other libraries test themselves by, where they are installed: torch's own samples of SDPA and
of ``nn.MultiheadAttention``, problems drawn as NATTEN's sweep draws them, xformers' generator of biases.
"""

import math
import random

import pytest
import torch

import graphattn as ga

pytestmark = pytest.mark.slow


def same(found, expected, inputs, near):
    assert torch.allclose(found, expected, rtol=near, atol=near)
    leaves = [x for x in inputs if x.requires_grad]
    cotangent = torch.randn_like(expected)
    both = [torch.autograd.grad(y, leaves, cotangent, allow_unused=True) for y in (found, expected)]
    for mine, theirs, leaf in zip(*both, leaves, strict=True):
        mine, theirs = (torch.zeros_like(leaf) if x is None else x for x in (mine, theirs))
        assert torch.allclose(mine, theirs, rtol=10 * near, atol=10 * near)


def test_sdpa_by_torchs_samples():
    ops = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db
    (op,) = [op for op in ops if op.name == "nn.functional.scaled_dot_product_attention"]
    run = 0
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        options = dict(sample.kwargs)
        if options.pop("dropout_p", 0.0):
            continue
        query, key, value = (sample.input, *sample.args[:2])
        bias = options.pop("attn_mask", None)
        bias = sample.args[2] if len(sample.args) > 2 else bias
        heads_first = [query, key, value]
        if not options.get("enable_gqa"):
            lead = torch.broadcast_shapes(*(x.shape[:-2] for x in heads_first))
            heads_first = [x.expand(*lead, *x.shape[-2:]) for x in heads_first]
        if heads_first[0].dim() == 3:
            heads_first = [x.unsqueeze(-3) for x in heads_first]
        T, S = query.shape[-2], key.shape[-2]
        graph = ga.graphs.full(T) if T == S else ga.graphs.cross(T, S)
        if options.pop("is_causal", False):
            graph = ga.from_mask(torch.ones(T, S, dtype=torch.bool).tril())
        arguments = {"scale": options.pop("scale", None)}
        if bias is not None:
            if query.dim() == key.dim() == 3 and bias.dim() == 3:
                bias = bias.unsqueeze(-3)
            if bias.dtype == torch.bool:
                bias = torch.zeros(bias.shape, dtype=torch.float64).masked_fill(~bias, -torch.inf)
            bias = bias.expand(*bias.shape[:-2], T, S)
            arguments["score_bias"] = graph.edge_values(bias)
        assert options.keys() <= {"enable_gqa"}
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, *sample.args[2:], **sample.kwargs
        )
        found = ga.attention(*(x.transpose(-2, -3) for x in heads_first), graph, **arguments)
        found = found.transpose(-2, -3)
        if expected.dim() == 3:
            found = found.squeeze(-3)
        same(found, expected, (query, key, value), 1e-12)
        run += 1
    assert run >= 8


def blocked(mask, padding, batch, heads, T, S):
    """Two masks of nn.MultiheadAttention as one bias (B, H or 1, T, S)."""
    total = torch.zeros(1, 1, T, S, dtype=torch.float64)
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, -torch.inf)
        total = total + (mask.view(-1, heads, T, S) if mask.dim() == 3 else mask)
    if padding is not None:
        if padding.dtype == torch.bool:
            padding = torch.zeros(padding.shape, dtype=torch.float64).masked_fill(
                padding, -torch.inf
            )
        total = total + padding.view(batch, 1, 1, S)
    return total.double()


@pytest.mark.parametrize("training", [False, True])
def test_multihead_attention_by_torchs_samples(training):
    modules = pytest.importorskip("torch.testing._internal.common_modules").module_db
    (info,) = [info for info in modules if info.name == "nn.MultiheadAttention"]
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
    )
    run = 0
    for sample in samples:
        made = sample.constructor_input
        mha = info.module_cls(*made.args, **{**made.kwargs, "dtype": torch.float64})
        mha.train(training and mha.dropout == 0)
        operands = sample.forward_input.args
        masks = sample.forward_input.kwargs
        expected = mha(*operands, **masks)[0]
        layer = ga.nn.GraphAttention.from_torch(mha)
        query, key, value = operands
        batched = query.dim() == 3
        if batched and not mha.batch_first:
            query, key, value = (x.transpose(0, 1) for x in operands)
        T, S = query.shape[-2], key.shape[-2]
        graph = ga.graphs.full(T) if T == S else ga.graphs.cross(T, S)
        bias = blocked(
            masks.get("attn_mask"),
            masks.get("key_padding_mask"),
            len(query) if batched else 1,
            mha.num_heads,
            T,
            S,
        )
        if not batched:
            bias = bias.squeeze(0)
        found = layer(query, graph, context=(key, value), score_bias=graph.edge_values(bias))
        if batched and not mha.batch_first:
            found = found.transpose(0, 1)
        same(found, expected, operands, 1e-12)
        run += 1
    assert run >= 32


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_neighbourhoods_by_a_sweep_as_nattens(axes):
    """Outputs beside ``na1d``, ``na2d`` and ``na3d`` on the CPU, in float32."""
    natten = pytest.importorskip("natten")
    attend = (natten.na1d, natten.na2d, natten.na3d)[axes - 1]
    drawn = random.Random(axes)
    for _ in range(12):
        most = {1: 64, 2: 12, 3: 6}[axes]
        size = tuple(drawn.randint(4, most) for _ in range(axes))
        kernel = tuple(drawn.randint(2, min(7, length)) for length in size)
        dilation = tuple(
            drawn.randint(1, length // k) for length, k in zip(size, kernel, strict=True)
        )
        causal = tuple(drawn.random() < 0.4 for _ in range(axes))
        heads, width = drawn.choice([1, 2, 3]), drawn.choice([16, 32])
        tensors = torch.randn(3, 2, *size, heads, width)
        expected = attend(*tensors, kernel_size=kernel, dilation=dilation, is_causal=causal)
        graph = ga.graphs.grid_neighbourhood(size, kernel, dilation=dilation, causal=causal)
        nodes = tensors.flatten(2, 1 + axes)
        found = ga.attention(*nodes, graph).view_as(expected)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), (size, kernel, dilation)


def biases_of_xformers():
    try:
        from xformers.attn_bias_utils import create_attn_bias
        from xformers.ops.fmha import attn_bias
    except Exception:  # not installed, or built for another torch
        return None, []
    kinds = (
        "LowerTriangularMask",
        "LowerTriangularFromBottomRightMask",
        "LowerTriangularFromBottomRightLocalAttentionMask",
        "LowerTriangularMaskWithTensorBias",
        "LocalAttentionFromBottomRightMask",
        "BlockDiagonalMask",
        "BlockDiagonalCausalMask",
        "BlockDiagonalCausalFromBottomRightMask",
        "BlockDiagonalCausalLocalAttentionMask",
        "BlockDiagonalCausalLocalAttentionFromBottomRightMask",
        "BlockDiagonalPaddedKeysMask",
        "BlockDiagonalCausalWithOffsetPaddedKeysMask",
        "BlockDiagonalGappyKeysMask",
    )
    return create_attn_bias, [getattr(attn_bias, kind) for kind in kinds]


def test_padded_keys_of_xformers():
    """Packed queries beside rows of keys that are padded, or begin anywhere."""
    create, kinds = biases_of_xformers()
    if create is None:
        pytest.skip("xformers is not installed")
    for kind in kinds:
        if "PaddedKeys" not in kind.__name__ and "Gappy" not in kind.__name__:
            continue
        made = create(kind, 3, 2, 1, 5, 8, "cpu", torch.float64, requires_grad=False, fmt="BMHK")
        starts = made.q_seqinfo.seqstart_py
        of_sources = made.k_seqinfo.seqstart_py
        lengths = made.k_seqinfo.seqlen_py[: len(starts) - 1]
        sizes = zip(starts[:-1], starts[1:], lengths, strict=True)
        parts = []
        for first, stop, length in sizes:
            part = ga.graphs.cross(stop - first, length)
            if "Causal" in kind.__name__:
                part = ga.from_rule(
                    lambda t, s, k=length, q=stop - first: s - (k - q) <= t, stop - first, length
                )
            parts.append(part)
        graph = ga.disjoint_union(parts, of_sources)
        shape = (1, 1, starts[-1], of_sources[-1])
        numbers = made.materialize(shape, dtype=torch.float64, device="cpu")
        assert torch.equal(graph.mask(), (numbers > -torch.inf)[0, 0]), kind.__name__


@pytest.mark.parametrize("sizes", [(1, 7, 7), (2, 5, 13), (3, 16, 33)])
def test_biases_by_the_generator_of_xformers(sizes):
    """Each bias that xformers' tests draw, read as a graph and as SDPA's mask by its own ``materialize``."""
    create, kinds = biases_of_xformers()
    if create is None:
        pytest.skip("xformers is not installed")
    batch, T, S = sizes
    heads, width = 2, 8
    for kind in kinds:
        name = kind.__name__
        made = create(
            kind, batch, heads, 1, T, S, "cpu", torch.float64, requires_grad=False, fmt="BMHK"
        )
        packed = name.startswith("BlockDiagonal")
        examples = 1 if packed else batch
        rows, columns = (batch * T, batch * S) if packed else (T, S)
        if packed:
            rows, columns = made.q_seqinfo.seqstart_py[-1], made.k_seqinfo.seqstart_py[-1]
        shape = (examples, heads, rows, columns)
        numbers = made.materialize(shape, dtype=torch.float64, device="cpu").expand(shape)
        graph = ga.from_mask((numbers > -torch.inf).any(0).any(0))
        query, key, value = (
            torch.randn(examples, n, heads, width, dtype=torch.float64, requires_grad=True)
            for n in (rows, columns, columns)
        )
        bias = None
        if name.endswith("TensorBias"):
            bias = graph.edge_values(numbers)
        found = ga.attention(query, key, value, graph, score_bias=bias)
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        weights = (q @ k.mT / math.sqrt(width) + numbers).softmax(-1).nan_to_num(0.0)
        alone = graph.in_degree == 0
        expected = (weights @ v).transpose(1, 2)
        assert torch.equal(found[:, alone], torch.zeros_like(found[:, alone]))
        same(found[:, ~alone], expected[:, ~alone], (query, key, value), 1e-12)
