"""BERT with the weights of transformers' own: types, norms after, heads, the pooler, padding."""

import pytest
import torch
from text_models import all_gradients, changed, same, same_gradients, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, PositionIndexError, ShapeError
from graphattn.models import BERT, from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")
BertConfig, BertForMaskedLM, BertModel = (
    transformers.BertConfig,
    transformers.BertForMaskedLM,
    transformers.BertModel,
)

B, N, V, C = 3, 7, 13, 12
SMALL = {
    "vocab_size": V,
    "hidden_size": C,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 11,
    "type_vocab_size": 3,
    "attn_implementation": "sdpa",
}


def theirs(kind=BertForMaskedLM, training=False, **options):
    torch.manual_seed(0)
    return shaken(kind(BertConfig(**{**SMALL, **options})), training)


def given():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(V, (B, N), generator=generator), torch.randint(3, (B, N), generator=generator)


@pytest.mark.parametrize(
    "options",
    [{}, {"hidden_act": "relu", "layer_norm_eps": 1e-2}, {"hidden_act": "gelu_new", "tie_word_embeddings": False}],
    ids=repr,
)
def test_masked_tokens(options):
    model, (tokens, types) = theirs(**options), given()
    mine = from_hf(model)
    assert (mine.head.out.weight is mine.embedding.weight) == ("tie_word_embeddings" not in options)
    output, expected = mine(tokens, types=types), model(tokens, token_type_ids=types).logits
    same(output, expected)
    same_gradients(mine, model, output, expected)
    same(mine(tokens), model(tokens).logits)
    assert not torch.allclose(mine(tokens), output)


def test_features_and_pooler():
    model, (tokens, types) = theirs(BertModel), given()
    mine, at = from_hf(model), torch.tensor([4, 2, 10, 0, 1, 7, 7])
    features = mine(tokens, types=types, positions=at)
    expected = model(tokens, token_type_ids=types, position_ids=at[None])
    same(features, expected.last_hidden_state)
    same(mine.pooled(features), expected.pooler_output)
    same(all_gradients(mine, mine.pooled(features)), all_gradients(model, expected.pooler_output), 1e-11)
    same(mine(tokens[1], types=types[1], positions=at), features[1])
    plain = from_hf(shaken(BertModel(BertConfig(**SMALL), add_pooling_layer=False)))
    with pytest.raises(OptionError, match="built with pooler=False"):
        plain.pooled(plain(tokens))


def test_padding_three_ways():
    model, (tokens, types) = theirs(), given()
    mine, lengths = from_hf(model), torch.tensor([7, 4, 5])
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
    model, (tokens, _) = theirs(), given()
    mine = from_hf(model)
    longformer = graphs.sliding_window(..., 3, causal=False) | graphs.global_tokens(..., (0,))
    same(mine(tokens, longformer), model(tokens, attention_mask=longformer(N).mask()[None, None]).logits)
    less = graphs.full(N) - ga.from_edge_index([[2], [5]], num_sources=N, num_targets=N)
    assert changed(mine(tokens), mine(tokens, [graphs.full(N), less])) == [False] * 5 + [True, False]
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


@pytest.mark.parametrize("place", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_where_theirs_is(place):
    off, (tokens, _) = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, given()
    model = theirs(training=True, **{**off, place: 1.0})
    same(from_hf(model)(tokens), model(tokens).logits)
    assert not torch.allclose(model(tokens).logits, theirs(training=True, **off)(tokens).logits)


def test_sizes_of_the_paper():
    with torch.device("meta"):
        base, large = BERT(), BERT(embed_dim=1024, num_heads=16, num_layers=24)
    assert sum(p.numel() for p in base.parameters()) == 109_482_240
    assert sum(p.numel() for p in large.parameters()) == 335_141_888


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda m, x: m(x, types=x.double()), ShapeError, "types must be an int64 or int32 tensor"),
        (lambda m, x: m(x, types=x * 0 + 2), PositionIndexError, r"types must be in \[0, 2\)"),
        (lambda m, x: m(x.clamp(min=1) - 2), PositionIndexError, r"tokens must be in \[0, 13\)"),
        (lambda m, x: m(x, types=x[:, :3] * 0), ShapeError, r"types must be \(..., 7\), as tokens are; got \(3, 3\)"),
        (lambda m, x: m.pooled(m(x)[:, :0]), ShapeError, r"features must have a first token, got \(3, 0, 12\)"),
        (lambda m, x: m.pooled(m(x)[0, 0]), ShapeError, r"features must have shape \(..., N, 12\), got \(12,\)"),
        (lambda m, x: BERT(-1, C, 3, 2), OptionError, "vocab_size must be a whole number >= 1, got -1"),
        (lambda m, x: BERT(V, C, 3, 2, num_types=0), OptionError, "num_types must be a whole number >= 1, got 0"),
        (lambda m, x: BERT(V, C, 3, 2, masked_head=3), OptionError, "masked_head must be True or False, got 3"),
        (lambda m, x: BERT(V, C, 3, 2, dropout=2), OptionError, r"dropout must be a number in \[0, 1\], got 2"),
        (lambda m, x: from_hf(theirs(is_decoder=True)), OptionError, "is_decoder = True cannot be read; only False"),
    ],
)
def test_refusals(use, error, message):
    with pytest.raises(error, match=message):
        use(BERT(V, C, 3, 2, max_len=11), given()[0])
