"""GPT-2 with the weights of transformers' own, along its graph and along others."""

import pytest
import torch
from hf_table import theirs
from text_models import changed, same

# after hf_table, which skips where there is none
from transformers import GPT2Config, GPT2LMHeadModel

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, PositionIndexError, ShapeError
from graphattn.models import GPT, from_transformers
from graphattn.nn import Rotary

B, N, V = 3, 7, 13


def tokens():
    return torch.randint(V, (B, N), generator=torch.Generator().manual_seed(1))


def test_another_graph_is_another_mask_there():
    model, given = theirs("GPT2"), tokens()
    mine = from_transformers(model)
    window = graphs.sliding_window(N, 3, causal=True) | graphs.global_tokens(N, (0,))
    window = window & graphs.causal(N)
    same(mine(given, window), model(given, attention_mask=window.mask()[None, None]).logits)
    same(
        mine(given, graphs.sliding_window(..., 3, causal=True)),
        mine(given, graphs.sliding_window(N, 3, causal=True)),
        0.0,
    )
    less = graphs.causal(N) - ga.from_edge_index([[2], [5]], num_sources=N, num_targets=N)
    # 6 reads what 5 became
    assert changed(mine(given), mine(given, less)) == [False] * 5 + [True] * 2
    last = mine(given, [graphs.causal(N), less])
    assert changed(mine(given), last) == [False] * 5 + [True, False]


def test_positions_and_packed_sequences():
    model, given = theirs("GPT2"), tokens()
    mine, at = from_transformers(model), torch.tensor([4, 2, 10, 0, 1, 7, 7])
    same(mine(given, positions=at), model(given, position_ids=at[None]).logits)
    packed = graphs.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1]), causal=False) & graphs.causal(N)
    found = mine(given, packed, positions=torch.tensor([0, 1, 2, 0, 1, 2, 3]))
    same(found, torch.cat([model(part).logits for part in given.split((3, 4), 1)], 1))


def test_rotary_needs_no_other_positions():
    torch.manual_seed(0)
    model = GPT(V, 12, 3, 2, rotary=Rotary(4), dropout=0.0).double().eval()
    assert (model.position, model.max_len, model.num_layers) == (None, None, 2)
    given = tokens()
    same(model(given, positions=torch.arange(N) + 5), model(given))
    assert not torch.allclose(model(given, positions=torch.arange(N) * 2), model(given))


def test_fresh_weights_are_those_of_gpt2():
    torch.manual_seed(0)
    model, fresh = (
        GPT.gpt2(V, 64, 2, 2, max_len=N).stack.layers[1],
        GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=2)),
    )
    layer = fresh.transformer.h[1]
    pairs = [
        (
            torch.cat([getattr(model.attention, f"{each}_proj").weight for each in "qkv"]),
            layer.attn.c_attn.weight,
        ),
        (model.attention.out_proj.weight, layer.attn.c_proj.weight),
        (model.feed_forward.up.weight, layer.mlp.c_fc.weight),
        (model.feed_forward.down.weight, layer.mlp.c_proj.weight),
    ]
    for mine, wanted in pairs:
        assert float(mine.std()) == pytest.approx(float(wanted.std()), rel=0.05)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


def test_sizes_of_the_paper():
    with torch.device("meta"):
        assert sum(p.numel() for p in GPT.gpt2().parameters()) == 124_439_808  # the smallest GPT-2


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda m, x: m(x + V),
            PositionIndexError,
            r"tokens must be in \[0, 13\), the rows of the table, got 13 to 25",
        ),
        (lambda m, x: m(x, graphs.causal(N + 1)), ShapeError, "7 nodes"),
        (lambda m, x: m(x, [graphs.causal(N)] * 3), GraphError, "2 layers need as many graphs"),
        (
            lambda m, x: m(x.repeat(1, 2)),
            PositionIndexError,
            "x must have at most max_len = 11 nodes",
        ),
        (
            lambda m, x: GPT(V, 12, 3, 1, score_bias=ga.nn.ALiBi(3))(x, positions="abc"),
            ShapeError,
            "positions of targets must be",
        ),
    ],
)
def test_refusals(use, error, message):
    with pytest.raises(error, match=message):
        use(GPT.gpt2(V, 12, 3, 2, max_len=11), tokens())
