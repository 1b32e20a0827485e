"""BERT with the weights of transformers' own: types, norms after, heads, the pooler, padding."""

import pytest
import torch
from hf_table import theirs
from text_models import changed, same

import graphattn as ga
from graphattn import graphs
from graphattn.errors import PositionIndexError, ShapeError
from graphattn.models import BERT, from_transformers

B, N, V, C = 3, 7, 13, 12


def given():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(V, (B, N), generator=generator), torch.randint(
        3, (B, N), generator=generator
    )


def test_padding_three_ways():
    model, (tokens, types) = theirs("Bert"), given()
    mine, lengths = from_transformers(model), torch.tensor([7, 4, 5])
    real = torch.arange(N) < lengths[:, None]
    expected = model(tokens, attention_mask=real.long(), token_type_ids=types).logits[real]
    full = graphs.full(N)
    absent = (full.source >= lengths[:, None])[..., None]
    bias = torch.zeros(B, full.num_edges, 1, dtype=torch.float64).masked_fill(absent, -torch.inf)
    same(mine(tokens, full, types=types, score_bias=bias)[real], expected)
    packed = ga.disjoint_union([graphs.full(int(n)) for n in lengths])
    at = torch.cat([torch.arange(n) for n in lengths])
    same(mine(tokens[real], packed, types=types[real], positions=at), expected)
    assert not torch.allclose(mine(tokens, types=types)[real], expected)


def test_another_graph_is_another_mask_there():
    model, (tokens, _) = theirs("Bert"), given()
    mine = from_transformers(model)
    longformer = graphs.sliding_window(..., 3, causal=False) | graphs.global_tokens(..., (0,))
    same(
        mine(tokens, longformer),
        model(tokens, attention_mask=longformer(N).mask()[None, None]).logits,
    )
    less = graphs.full(N) - ga.from_edge_index([[2], [5]], num_sources=N, num_targets=N)
    assert changed(mine(tokens), mine(tokens, [graphs.full(N), less])) == [False] * 5 + [
        True,
        False,
    ]
    assert changed(mine(tokens), mine(tokens, [less, graphs.full(N)])) == [True] * N


def test_layers_turn_by_the_positions_that_are_given():
    torch.manual_seed(0)
    tokens, at, alibi = given()[0], torch.arange(N) * 2 % 11, ga.nn.ALiBi(3)
    for options, bias in (({"rotary": ga.nn.Rotary(4)}, None), ({}, alibi), ({}, [None, alibi])):
        model = BERT(V, C, 3, 2, max_len=11, **options).eval()
        stack, embedded = model.stack, model.embedded(tokens, positions=at)
        found = model(tokens, positions=at, score_bias=bias)
        assert torch.equal(found, stack(embedded, graphs.full(N), positions=at, score_bias=bias))
        assert not torch.allclose(found, stack(embedded, graphs.full(N), score_bias=bias))
    head = BERT(V, C, 3, 2, masked_head=True, activation="gated_silu").head
    x = torch.randn(N, C)
    assert torch.equal(head(x), head.out(head.norm(torch.nn.functional.silu(head.dense(x)))))


def test_sizes_of_the_paper():
    with torch.device("meta"):
        base, large = BERT(), BERT(embed_dim=1024, num_heads=16, num_layers=24)
    assert sum(p.numel() for p in base.parameters()) == 109_482_240
    assert sum(p.numel() for p in large.parameters()) == 335_141_888


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda m, x: m(x, types=x.double()),
            ShapeError,
            r"types must be in \[0, 2\), the rows of the table, got 0 to 12",
        ),
        (lambda m, x: m(x, types=x * 0 + 2), PositionIndexError, r"types must be in \[0, 2\)"),
        (lambda m, x: m(x.clamp(min=1) - 2), PositionIndexError, r"tokens must be in \[0, 13\)"),
    ],
)
def test_refusals(use, error, message):
    with pytest.raises(error, match=message):
        use(BERT(V, C, 3, 2, max_len=11), given()[0])
