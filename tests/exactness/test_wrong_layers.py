"""Ways in which hand-written and ported attention is wrong, each by its name; right attention is
accused of none.
"""

import itertools

import pytest
import torch
from graph_table import GRAPHS
from torch import nn
from torch.nn.functional import dropout, normalize, scaled_dot_product_attention
from torch_geometric.utils import softmax as torch_geometric_softmax

from graphattn.exactness import arguments, operator, verify
from graphattn.nn import GraphAttention, Rotary

DOUBLE = (torch.float64,)
CAUSAL, RANDOM = GRAPHS["causal"](), GRAPHS["listed_random"]()


def product(q, k, scale=8**-0.5):
    """Scores (H, T, S)."""
    return torch.einsum("thd,shd->hts", q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)) * scale


def gathered(weights, v):
    """(T, H, D_v)."""
    return torch.einsum(
        "hts,shd->thd", weights, v.repeat_interleave(weights.shape[0] // v.shape[1], 1)
    )


def attend(q, k, v, mask, scale=8**-0.5):
    return gathered(torch.softmax(product(q, k, scale).masked_fill(~mask, -torch.inf), -1), v)


def filled(number, again=False):
    def layer(q, k, v, mask):
        weights = torch.softmax(product(q, k).masked_fill(~mask, number), -1)
        return gathered(weights * mask if again else weights, v)

    return layer


def added(number):
    return lambda q, k, v, mask: gathered(torch.softmax(product(q, k) + number * ~mask, -1), v)


def weighted(weights):
    """Weights of scores and the mask."""
    return lambda q, k, v, mask: gathered(weights(product(q, k), mask), v)


def inside(z, mask):
    return z.masked_fill(~mask, -torch.inf)


def moved(q=0, k=0, v=0, out=0):
    return lambda *x: attend(x[0].roll(q, 0), x[1].roll(k, 0), x[2].roll(v, 0), x[3]).roll(out, 0)


def late(x):
    """One token later, with zeros before."""
    return torch.cat((torch.zeros_like(x[:1]), x[:-1]))


def reheaded(q=range(4), k=range(2), v=range(2), out=range(4)):
    return lambda *x: attend(x[0][:, list(q)], x[1][:, list(k)], x[2][:, list(v)], x[3])[
        :, list(out)
    ]


def rotated(x, halves=True):
    angle = torch.arange(x.shape[0], dtype=x.dtype)[:, None, None] * 10000.0 ** (
        -torch.arange(0, 8, 2) / 8
    ).to(x)
    one, other = x.chunk(2, -1) if halves else (x[..., ::2], x[..., 1::2])
    pairs = one * angle.cos() - other * angle.sin(), one * angle.sin() + other * angle.cos()
    return torch.cat(pairs, -1) if halves else torch.stack(pairs, -1).flatten(-2)


def viewed(x):
    """(N, H, D) read as (H, N, D) without a transpose, and seen as (N, H, D) again."""
    return x.reshape(x.shape[1], x.shape[0], x.shape[2]).transpose(0, 1)


def interleaved(x):
    return x.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)


def unviewed(x):
    return x.transpose(0, 1).reshape(x.shape)


def narrow(dtype, inputs=False):
    def layer(q, k, v, mask):
        if inputs:
            return attend(*(x.to(dtype) for x in (q, k, v)), mask).to(q)
        return gathered(torch.softmax(inside(product(q, k), mask).to(dtype), -1).to(q), v)

    return layer


def divided(epsilon, of):
    """Weights over their sum, which an epsilon keeps from 0."""

    def layer(q, k, v, mask):
        weights = of(product(q, k), mask).nan_to_num() * mask
        return gathered(weights / (weights.sum(-1, keepdim=True) + epsilon), v)

    return layer


def below_the_largest(z, mask):
    return (z - inside(z, mask).amax(-1, keepdim=True)).exp()


def rounded(dtype):
    return weighted(lambda z, m: torch.softmax(inside(z, m), -1).nan_to_num().to(dtype).to(z))


BROKEN = {
    "scale missing": (
        "scale 1.0: the product is not scaled",
        lambda q, k, v, m: attend(q, k, v, m, 1.0),
    ),
    "scale 1/D": ("scale 1 / D", lambda q, k, v, m: attend(q, k, v, m, 1 / 8)),
    "scale sqrt(D)": ("scale sqrt(D)", lambda q, k, v, m: attend(q, k, v, m, 8**0.5)),
    "scale of all heads": (
        "scale of all heads together",
        lambda q, k, v, m: attend(q, k, v, m, 32**-0.5),
    ),
    "scale of the values": (
        "1.155 times the right scale",
        lambda q, k, v, m: attend(q, k, v, m, 6**-0.5),
    ),
    "some scale": ("0.5657 times the right scale", lambda q, k, v, m: attend(q, k, v, m, 0.2)),
    "exp2": (
        "exp2 in place of exp",
        weighted(lambda z, m: torch.softmax(inside(z, m) * 0.6931471805599453, -1)),
    ),
    "over targets": (
        "softmax over the wrong axis: over targets",
        weighted(lambda z, m: torch.softmax(inside(z, m), -2).nan_to_num()),
    ),
    "over heads": (
        "softmax over the wrong axis: over heads",
        weighted(lambda z, m: torch.softmax(z, 0) * m),
    ),
    "mask transposed": ("rows swapped", lambda q, k, v, m: attend(q, k, v, m.t()).nan_to_num()),
    "mask inverted": ("inverted mask", lambda q, k, v, m: attend(q, k, v, ~m).nan_to_num()),
    "mask ignored": ("mask ignored", lambda q, k, v, m: attend(q, k, v, torch.ones_like(m))),
    "fill 0": ("missing edges filled with 0 before", filled(0.0)),
    "fill 1e-9": ("missing edges filled with 0 before", filled(1e-9)),
    "fill -10": ("missing edges filled with -10 before", filled(-10.0)),
    "fill -10, scaled": (
        "missing edges filled with -3.536 before",
        weighted(lambda z, m: torch.softmax((z * 8**0.5).masked_fill(~m, -10.0) * 8**-0.5, -1)),
    ),
    "add -5": ("-5 added to the scores of missing edges", added(-5.0)),
    "mask as numbers": (
        "mask added as 0 and 1",
        weighted(lambda z, m: torch.softmax(z + m.to(z), -1)),
    ),
    "additive mask, wrong sign": (
        "inverted mask",
        weighted(lambda z, m: torch.softmax(z + m * -1e9, -1) * (~m).any(1)[:, None]),
    ),
    "mask multiplied": (
        "missing edges filled with 0 before",
        weighted(lambda z, m: torch.softmax(z * m, -1)),
    ),
    "mask after": ("masked after the softmax", weighted(lambda z, m: torch.softmax(z, -1) * m)),
    "fill 0, masked again": (
        "missing edges filled with 0 before the softmax, and dropped after it",
        filled(0.0, again=True),
    ),
    "softmax and 1": (
        "1 added to the sum",
        weighted(lambda z, m: inside(z, m).exp() / (1 + inside(z, m).exp().sum(-1, keepdim=True))),
    ),
    "exp alone": (
        "exp of the scores, not divided by their sum",
        weighted(lambda z, m: inside(z, m).exp()),
    ),
    "no softmax": ("no softmax: the scores are the weights", weighted(lambda z, m: z * m)),
    "sigmoid": ("sigmoid in place of softmax", weighted(lambda z, m: z.sigmoid() * m)),
    "mean": (
        "the scores ignored",
        weighted(lambda z, m: m.to(z) / m.sum(-1, keepdim=True).clamp(min=1) + 0 * z),
    ),
    "softmax twice": (
        "softmax twice",
        weighted(lambda z, m: torch.softmax(inside(torch.softmax(inside(z, m), -1), m), -1)),
    ),
    "log-softmax": (
        "log_softmax",
        weighted(lambda z, m: torch.log_softmax(inside(z, m), -1).masked_fill(~m, 0)),
    ),
    "dropout": (
        "two calls on the same inputs differ",
        weighted(lambda z, m: dropout(torch.softmax(inside(z, m), -1), 0.1)),
    ),
    "random": (
        "two calls on the same inputs differ",
        weighted(lambda z, m: torch.softmax(inside(z, m), -1) + 1e-3 * torch.rand_like(z) * m),
    ),
    "cosine": (
        "cosines",
        lambda q, k, v, m: attend(normalize(q, dim=-1), normalize(k, dim=-1), v, m),
    ),
    "query and key swapped": (
        "query and key swapped",
        lambda q, k, v, m: attend(k.repeat_interleave(2, 1), q, v.repeat_interleave(2, 1), m),
    ),
    "tiled": (
        "heads grouped by tiling",
        lambda q, k, v, m: attend(q, k.repeat(1, 2, 1), v.repeat(1, 2, 1), m),
    ),
    "tiled values": ("heads of value", lambda q, k, v, m: attend(q, k, v.repeat(1, 2, 1), m)),
    "values' heads swapped": ("heads of value", reheaded(v=(1, 0))),
    "keys' heads swapped": ("heads of key", reheaded(k=(1, 0))),
    "heads of queries turned": ("heads of query", reheaded(q=(1, 2, 3, 0))),
    "heads of the output turned": ("heads of the output", reheaded(out=(1, 0, 3, 2))),
    "one head of keys and values": ("heads of key and value", reheaded(k=(0, 0), v=(0, 0))),
    "output viewed": (
        "heads joined by a view alone",
        lambda *x: attend(*x).transpose(0, 1).reshape(x[0].shape[0], 4, 6),
    ),
    "inputs viewed": (
        "heads split by a view alone",
        lambda q, k, v, m: attend(viewed(q), viewed(k), viewed(v), m),
    ),
    "all viewed": (
        "and joined likewise",
        lambda q, k, v, m: unviewed(attend(viewed(q), viewed(k), viewed(v), m)),
    ),
    "heads innermost": (
        "heads innermost",
        lambda q, k, v, m: attend(interleaved(q), interleaved(k), interleaved(v), m),
    ),
    "query late": ("a token off: target t has the query of t - 1", moved(q=1)),
    "query late, zeros": (
        "a token off: target t has the query of t - 1",
        lambda q, *x: attend(late(q), *x),
    ),
    "query early": ("a token off: target t has the query of t + 1", moved(q=-1)),
    "key late": ("a token off: the weight of source s is that of the key of s - 1", moved(k=1)),
    "value late": ("a token off: source s has the value of s - 1", moved(v=1)),
    "value late, zeros": (
        "a token off: source s has the value of s - 1",
        lambda q, k, v, m: attend(q, k, late(v), m),
    ),
    "key and value early": ("a token off: source s has key and value of s + 1", moved(k=-1, v=-1)),
    "output late": ("a token off: target t has the output of t - 1", moved(out=1)),
    "rotary": ("rotated by their places", lambda q, k, v, m: attend(rotated(q), rotated(k), v, m)),
    "rotary, interleaved": (
        "rotated by their places",
        lambda q, k, v, m: attend(rotated(q, False), rotated(k, False), v, m),
    ),
    "rotary of queries alone": (
        "queries alone rotated",
        lambda q, k, v, m: attend(rotated(q), k, v, m),
    ),
    "an epsilon": (
        "1e-06 added to the sum",
        divided(1e-6, lambda z, m: (z - inside(z, m).amax(-1, keepdim=True)).exp()),
    ),
    "an epsilon without a maximum": ("1e-08 added to the sum", divided(1e-8, lambda z, m: z.exp())),
    "an epsilon after a softmax": (
        "after a softmax over all sources",
        divided(1e-5, lambda z, m: torch.softmax(z, -1)),
    ),
    "weights through bfloat16": ("weights rounded to bfloat16 after", rounded(torch.bfloat16)),
    "weights through float16": ("weights rounded to float16 after", rounded(torch.float16)),
    "softmax in float32": ("float32", narrow(torch.float32)),
    "softmax in bfloat16": ("weights rounded to bfloat16", narrow(torch.bfloat16)),
    "softmax in float16": ("weights rounded to float16", narrow(torch.float16)),
    "all in bfloat16": ("bfloat16", narrow(torch.bfloat16, True)),
    "all in float16": ("float16", narrow(torch.float16, True)),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("name", "graph"), list(zip(BROKEN, itertools.cycle((CAUSAL, RANDOM)), strict=False))
)
def test_a_broken_layer_is_named(name, graph):
    words, layer = BROKEN[name]
    mask = graph.mask()
    options = {
        "dtypes": DOUBLE,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "value_dim": 6,
        "gradients": False,
    }
    report = verify(lambda q, k, v: layer(q, k, v, mask), graph, **options)
    assert not report.ok
    assert words in report.diagnosis
    # as a rolled mask
    of_masks = "rows swapped", "inverted mask", "mask ignored", BROKEN["key and value early"][0]
    assert "from_mask" not in report.diagnosis or words in of_masks
    if "two calls" in words:
        assert {check.claim for check in report.checks if not check.ok} == {"the same bits twice"}
        assert "no claim about two runs was tried" in str(report)


def test_swapped_operands_are_named():
    mask = CAUSAL.mask()
    for words, order in (
        ("key and value swapped", (0, 2, 1)),
        ("query and value swapped", (2, 1, 0)),
    ):
        report = verify(
            lambda *x, at=order: attend(*(x[i] for i in at), mask, 5**-0.5), CAUSAL, dtypes=DOUBLE
        )
        assert words in report.diagnosis


@pytest.mark.parametrize(
    ("words", "off"), [("one source too many in the future", 1), ("self-loops missing", -1)]
)
def test_causal_off_by_one_is_named(words, off):
    mask = torch.ones(13, 13, dtype=torch.bool).tril(off)
    report = verify(
        lambda q, k, v: attend(q, k, v, mask, 5**-0.5).nan_to_num(), CAUSAL, dtypes=DOUBLE
    )
    assert words in report.diagnosis


CAP = 0.7


def capped(change):
    return lambda q, k, v, m, bias: gathered(
        torch.softmax(inside(change(product(q, k, 1.0), bias), m), -1), v
    )


def tanh(x):
    return CAP * torch.tanh(x / CAP)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "layer"),
    [
        ("score_bias subtracted", capped(lambda x, bias: tanh(0.61 * x) - bias)),
        ("score_bias added twice", capped(lambda x, bias: tanh(0.61 * x) + 2 * bias)),
        (
            "score_bias added after the softmax",
            lambda q, k, v, m, bias: gathered(
                torch.softmax(inside(tanh(product(q, k, 0.61)), m), -1) + bias, v
            ),
        ),
        ("softcap of the score with its bias", capped(lambda x, bias: tanh(0.61 * x + bias))),
        ("softcap before the scale", capped(lambda x, bias: 0.61 * tanh(x) + bias)),
        ("softcap without its factor", capped(lambda x, bias: torch.tanh(0.61 * x / CAP) + bias)),
        ("softcap as a clamp", capped(lambda x, bias: (0.61 * x).clamp(-CAP, CAP) + bias)),
    ],
)
def test_a_wrong_softcap_or_bias_is_named(monkeypatch, words, layer):
    """In a backend of the library, which alone is verified with biases."""

    def wrong(query, key, value, graph, score_bias=None, **options):
        bias = query.new_zeros(graph.num_targets, graph.num_sources, query.shape[-2])
        if score_bias is not None:
            bias[graph.target, graph.source] = score_bias
        batch = [
            layer(*x, graph.mask(), bias.permute(2, 0, 1))
            for x in zip(query, key, value, strict=True)
        ]
        return torch.stack(batch)

    monkeypatch.setattr(operator, "attention", wrong)
    options = {"dtypes": DOUBLE, "backends": ("dense",), "gradients": False}
    subject = operator.GraphSubject(RANDOM, softcap=CAP)
    monkeypatch.setattr(subject, "cases", (operator.Case("both", bias=True, softcap=CAP),))
    monkeypatch.setattr(arguments, "GraphSubject", lambda *args, **options: subject)
    assert words in verify(RANDOM, **options).diagnosis


def by_other_positions(change):
    """A layer whose targets have other positions than its sources."""

    def forward(self, x, graph, context=None, positions=None, **rest):
        return GraphAttention.forward(
            self, x, graph, context=context, positions=change(*positions), **rest
        )

    return forward


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("rotary ignored", lambda t, s: (0 * t, 0 * s)),
        ("rotary of queries alone", lambda t, s: (t, 0 * s)),
        ("rotary of keys alone", lambda t, s: (0 * t, s)),
        ("rotary applied twice", lambda t, s: (2 * t, 2 * s)),
        (
            "rotary by places 0, 1, 2",
            lambda t, s: (torch.arange(7.0).to(t), torch.arange(13.0).to(t)),
        ),
        ("positions one too large at the queries", lambda t, s: (t + 1, s)),
        ("opposite sign at the queries", lambda t, s: (-t, s)),
    ],
)
def test_rotary_on_wrong_positions_is_named(words, change):
    layer = type("Layer", (GraphAttention,), {"forward": by_other_positions(change)})(
        12, 2, rotary=Rotary(6)
    )
    report = verify(
        layer, GRAPHS["cross_causal_end"](), dtypes=DOUBLE, backends=("dense",), gradients=False
    )
    assert words in report.diagnosis


def test_the_other_layout_of_a_rotary_is_named():
    torch.manual_seed(0)
    layer = GraphAttention(12, 2, rotary=Rotary(6))
    other = GraphAttention(12, 2, rotary=Rotary(6, layout="interleaved"))
    other.load_state_dict(layer.state_dict())
    layer.forward = lambda x, graph, positions=None: other.to(x)(x, graph, positions=positions)
    report = verify(layer, RANDOM, dtypes=DOUBLE, backends=("dense",), gradients=False)
    assert "rotary in the other layout" in report.diagnosis


def test_two_mistakes_and_a_finite_mask_are_not_taken_for_a_wrong_graph():
    mask = RANDOM.mask()
    report = verify(
        lambda *x: gathered(torch.softmax(product(*x[:2], 1.7).masked_fill(~mask, -8.0), -1), x[2]),
        RANDOM,
    )
    assert "every source is read: no mask, or one of finite numbers" in report.diagnosis
    assert "from_mask" not in report.diagnosis


def test_a_dropout_of_float32_alone_is_no_reading_of_non_neighbours():
    """A layer in training mode, whose float64 path has none."""
    mask = RANDOM.mask()

    def layer(q, k, v):
        output = attend(q, k, v, mask, 5**-0.5)
        return output if q.dtype == torch.float64 else dropout(output, 0.2)

    report = verify(layer, RANDOM, dtypes=(torch.float32,))
    assert "two calls on the same inputs differ" in report.diagnosis
    assert [check.claim for check in report.checks if not check.ok] == ["the same bits twice"]


# --- right layers


def one_by_one(q, k, v, mask):
    out = q.new_zeros(*q.shape[:2], v.shape[2])
    for t, h in itertools.product(range(q.shape[0]), range(q.shape[1])):
        near, of = mask[t].nonzero().flatten(), h // (q.shape[1] // k.shape[1])
        weights = torch.softmax(k[near, of] @ q[t, h] * q.shape[2] ** -0.5, 0)
        out[t, h] = weights @ v[near, of]
    return out


def in_blocks(q, k, v, mask):
    """The running softmax of FlashAttention."""
    most, total, out = q.new_full((q.shape[1], q.shape[0], 1), -1e30), 0.0, 0.0
    group = q.shape[1] // k.shape[1]
    for block in torch.arange(k.shape[0]).split(5):
        score = inside(product(q, k[block], q.shape[2] ** -0.5), mask[:, block])
        new = torch.maximum(most, score.amax(-1, keepdim=True))
        weights, shrink = (score - new).exp(), (most - new).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ v[block].repeat_interleave(group, 1).transpose(0, 1)
        most = new
    return (out / total).transpose(0, 1)


def by_edges(q, k, v, mask):
    target, source = mask.nonzero().t()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    alpha = torch_geometric_softmax(
        (q[target] * k[source]).sum(-1) * q.shape[2] ** -0.5, target, num_nodes=len(q)
    )
    return (
        torch.zeros(*q.shape[:2], v.shape[2])
        .to(q)
        .index_add(0, target, alpha[..., None] * v[source])
    )


def heads_first(attention):
    def layer(q, k, v, mask):
        return attention(*(x.transpose(0, 1) for x in (q, k, v)), mask).transpose(0, 1)

    return layer


def multihead(q, k, v, mask):
    """nn.MultiheadAttention whose projections are identities."""
    mha = nn.MultiheadAttention(q[0].numel(), q.shape[1], bias=False, dtype=q.dtype)
    eye = torch.eye(q[0].numel(), dtype=q.dtype)
    mha.in_proj_weight.data, mha.out_proj.weight.data = eye.repeat(3, 1), eye
    return mha(*(x.flatten(1) for x in (q, k, v)), attn_mask=~mask, need_weights=False)[
        0
    ].unflatten(1, q.shape[1:])


RIGHT = {
    "einsum": lambda q, k, v, m: attend(q, k, v, m, q.shape[2] ** -0.5),
    "finite fill": lambda q, k, v, m: gathered(
        torch.softmax(
            product(q, k, q.shape[2] ** -0.5).masked_fill(~m, torch.finfo(q.dtype).min), -1
        ),
        v,
    ),
    "masked twice": lambda q, k, v, m: (
        m.any(1)[:, None, None] * attend(q, k, v, m, q.shape[2] ** -0.5)
    ),
    "loop": one_by_one,
    "blocks": in_blocks,
    "edges": by_edges,
    "sdpa": heads_first(
        lambda q, k, v, m: scaled_dot_product_attention(q, k, v, m, enable_gqa=True)
    ),
    "sdpa, float mask": heads_first(
        lambda q, k, v, m: scaled_dot_product_attention(
            q, k, v, torch.zeros(m.shape).to(q).masked_fill(~m, -torch.inf), enable_gqa=True
        )
    ),
    "multihead": multihead,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "graph"), list(zip(RIGHT, itertools.cycle((CAUSAL, RANDOM)), strict=False))
)
def test_a_right_layer_is_accused_of_nothing(name, graph):
    mask, layer = graph.mask(), RIGHT[name]
    report = verify(lambda q, k, v: layer(q, k, v, mask), graph)
    assert report.ok, report
    assert report.diagnosis is None


def test_a_mask_filled_with_a_number_that_no_output_shows_is_named():
    mask = CAUSAL.mask()
    report = verify(
        lambda q, k, v: filled(-100.0)(q, k, v, mask),
        CAUSAL,
        dtypes=DOUBLE,
        heads=4,
        kv_heads=2,
        head_dim=8,
        value_dim=6,
    )
    assert not report.ok
    assert "the mask is filled with a finite number, fill with -inf" in str(report)
