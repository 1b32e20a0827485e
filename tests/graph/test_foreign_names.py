"""What a call answers to the argument names of torch, transformers and FlashAttention."""

import inspect
import re
from functools import reduce

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn.errors import ArgumentNameError, OptionError
from graphattn.graph.foreign_names import _BY_NAME, _WAYS, names_checked
from graphattn.models.example import EXAMPLES
from graphattn.nn import GraphAttention

LAYER, GRAPH = GraphAttention(4, 2), ga.graphs.causal(5)
X = torch.randn(3, 5, 4)
QUERY = torch.randn(5, 2, 4)
TOKENS = torch.randint(11, (3, 5))
GPT = ga.models.GPT(11, 4, 2, 1)
CALLS = {
    "attention": (ga.attention, (QUERY, QUERY, QUERY, GRAPH)),
    "generate": (ga.models.generate, (GPT, TOKENS, 2)),
    "GraphAttention": (LAYER, (X, GRAPH)),
    **{
        name: (each.make(0.0), (*each.inputs(2), *each.graphs())) for name, each in EXAMPLES.items()
    },
}
CALLS = {
    name: (call, args)
    for name, (call, args) in CALLS.items()
    if not isinstance(call, nn.Module)
    or any(isinstance(layer, GraphAttention) for layer in call.modules())
}


def test_the_calls_that_attend_are_many():
    assert len(CALLS) > 15
    assert {"attention", "GraphAttention", "gpt", "swin"} <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_that_attends_answers_every_foreign_name(name):
    function, args = CALLS[name]
    known = inspect.signature(
        function.forward if isinstance(function, nn.Module) else function
    ).parameters
    for foreign in ("attn_mask", *_BY_NAME):
        if foreign not in known:
            with pytest.raises(
                ArgumentNameError,
                match=rf"takes no argument '{foreign}'.* It takes .*{list(known)[-1]}",
            ):
                function(*args, **{foreign: None})


WORDS = {
    "SDPA's mask": (
        lambda: ga.attention(X, X, X, GRAPH, attn_mask=None),
        r"^attention takes no .*from_mask\(mask\)",
    ),
    "SDPA's flag": (
        lambda: ga.attention(X, X, X, GRAPH, is_causal=True),
        r"graphattn.graphs.causal\(num_nodes\)",
    ),
    "FlashAttention's window": (
        lambda: ga.attention(X, X, X, GRAPH, window_size=(3, 0)),
        r"window_size=\(left, right\) is window=\(left, right\)",
    ),
    "its window, of a builder": (
        lambda: ga.graphs.sliding_window(8, window_size=3, causal=True),
        r"^sliding_window takes no argument .window_size.: a window is .* It takes num_targets, window, causal",
    ),
    "of a pattern": (
        lambda: ga.graphs.knn(..., num_neighbours=3),
        r"^knn takes no argument .num_neighbours.*k, ",
    ),
    "FlashAttention's scale": (
        lambda: ga.attention(X, X, X, GRAPH, softmax_scale=1.0),
        "it is called scale",
    ),
    "MHA's padding": (
        lambda: LAYER(X, GRAPH, key_padding_mask=None),
        r"-inf in score_bias \(batch, E, 1\)",
    ),
    "MHA's weights": (lambda: LAYER(X, GRAPH, need_weights=False), "with return_weights=True"),
    "transformers' padding": (
        lambda: GPT(TOKENS, attention_mask=TOKENS),
        r"^GPT .* lengths=.*attention_mask.sum\(-1\)",
    ),
    "transformers' cache": (
        lambda: GPT(TOKENS, use_cache=True),
        r"caches=model.begin\(batch, length\)",
    ),
    "transformers' weights": (
        lambda: GPT(TOKENS, output_attentions=True),
        r"graphattn.analysis.record_weights\(model\)",
    ),
    "a slip": (
        lambda: GPT(TOKENS, postions=None),
        r"'postions': did you mean 'positions'\? It takes tokens, graph",
    ),
    "nothing like it": (
        lambda: GPT(TOKENS, zzz=None),
        r"'zzz'\. It takes tokens, graph, positions, score_bias",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_answer_says_what_to_write(name):
    call, words = WORDS[name]
    with pytest.raises(ArgumentNameError, match=words) as caught:
        call()
    assert isinstance(caught.value, TypeError)  # as Python's own


def test_all_that_is_advised_exists():
    advice = " ".join(way for ways in _WAYS.values() for way in ways.values())
    names = set(re.findall(r"graphattn((?:\.\w+)+)", advice))
    assert len(names) > 10
    for name in names:
        assert reduce(getattr, name[1:].split("."), ga) is not None
    assert len(_BY_NAME) == sum(len(names.split()) for names in _WAYS)  # none twice


def test_advice_of_padding_and_windows_is_right():
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    lengths, graph = mask.sum(-1), ga.graphs.full(5)
    bias = torch.zeros(3, 25, 1).masked_fill(
        (graph.source >= lengths[:, None])[..., None], -torch.inf
    )
    inside = mask.bool()
    padded = GPT(TOKENS, graph, lengths=lengths)
    assert torch.allclose(padded[inside], GPT(TOKENS, graph, score_bias=bias)[inside], atol=1e-6)
    assert torch.allclose(padded[0, :3], GPT(TOKENS[0, :3], ga.graphs.full(3)), atol=1e-6)
    assert not torch.allclose(padded[0, :3], GPT(TOKENS[0], graph)[:3], atol=1e-3)
    seqlens = torch.tensor([0, 2, 5])
    ids = torch.repeat_interleave(torch.arange(2), seqlens.diff())
    packed = ga.disjoint_union([ga.graphs.full(2), ga.graphs.full(3)])
    assert ga.graphs.documents(ids, causal=False).equals(packed)
    left = ga.graphs.sliding_window(9, 2 + 1, causal=True)  # window_size=(2, 0)
    both = ga.graphs.sliding_window(9, 2 * 2 + 1, causal=False)  # (2, 2)
    apart = torch.arange(9)[:, None] - torch.arange(9)
    assert torch.equal(left.mask(), (apart >= 0) & (apart <= 2))
    assert torch.equal(both.mask(), apart.abs() <= 2)


def test_lengths_do_not_go_with_caches():
    with pytest.raises(
        OptionError, match="lengths exclude caches, whose later tokens would read the keys of"
    ):
        GPT(TOKENS, lengths=torch.tensor([5, 3, 2]), caches=GPT.begin(3, 5))


def test_a_checked_call_is_the_call():
    @names_checked
    def f(a, *, b=2):
        """About f."""
        return a, b

    assert (f(1), f(a=3, b=4), f.__doc__, f.__name__) == ((1, 2), (3, 4), "About f.", "f")
    with pytest.raises(TypeError, match="missing 1 required"):
        f()


@pytest.mark.parametrize(
    ("foreign", "words"),
    [
        ("device", r"call .to\(device, dtype\) on the module, or make it"),
        ("dtype", r"call .to\(device, dtype\) on the module, or make it"),
        ("batch_first", r"it needs no flag: tensors are \(batch, nodes, width\)"),
    ],
)
def test_the_layer_is_made_without_what_other_layers_take(foreign, words):
    with pytest.raises(
        ArgumentNameError,
        match=f"^GraphAttention takes no argument '{foreign}': {words}.* It takes emb",
    ):
        GraphAttention(8, num_heads=2, **{foreign: True})
