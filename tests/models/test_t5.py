"""T5 with the weights of transformers': equal in logits and every gradient, along any graph, token by token."""

from functools import partial

import pytest
import torch
from text_models import in_float64
from torch import nn

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, PositionIndexError, ShapeError
from graphattn.models import T5, Encoder
from graphattn.models import from_hf as converted
from graphattn.nn import ALiBi, KeyValueCache, T5Bias

transformers = pytest.importorskip("transformers", minversion="5.0")
S, T = 11, 7
SIZES = {"vocab_size": 17, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}  # S reaches the last bucket


def wide_norms(module):
    """Their norms in float64: they take the mean in float32 whatever the dtype."""
    for norm in module.modules():
        if type(norm).__name__.endswith("LayerNorm"):
            norm.forward = partial(wide_norm, norm)


def wide_norm(norm, x):
    return nn.functional.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def from_hf(model):
    """A model whose norms are as it came with them, while it is read: hooks and methods put in by hand are refused."""
    norms = [norm for norm in model.modules() if "forward" in vars(norm)]
    for norm in norms:
        del norm.forward
    try:
        return converted(model)
    finally:
        for norm in norms:
            norm.forward = partial(wide_norm, norm)


def hf(kind="T5", exact=True, **options):
    torch.manual_seed(4)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **BUCKETS, "num_decoder_layers": 3, **options})
    model = getattr(transformers, f"{kind}ForConditionalGeneration")._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    if exact:
        wide_norms(model)
    return model.double().eval()


def test_fresh_weights_spread_as_theirs():
    wide = {"d_model": 64, "d_kv": 32, "d_ff": 96, "num_heads": 3, "num_layers": 1, "num_decoder_layers": 1}
    wanted = from_hf(transformers.T5ForConditionalGeneration(transformers.T5Config(**{**SIZES, **wide}))).state_dict()
    torch.manual_seed(0)
    mine = T5(17, 64, 3, 1, 96, head_dim=32, num_decoder_layers=1)
    for name, weight in mine.named_parameters():
        if weight.dim() == 2 and "bias" not in name:
            assert float(weight.std()) == pytest.approx(float(wanted[name].std()), rel=0.1), name


@pytest.fixture
def tokens():
    draw = torch.Generator().manual_seed(1)
    return torch.randint(17, (2, S), generator=draw), torch.randint(17, (2, T), generator=draw)


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def same_gradients(mine, theirs, output, wanted):
    found = []
    for model, result in ((mine, output), (theirs, wanted)):
        given = torch.autograd.grad((result * result.detach().cos()).sum(), list(model.parameters()))
        found.append(torch.cat([g.flatten() for g in given]).sort().values)
    assert found[0].abs().max() > 0.1
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("T5", {}),
        ("T5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),  # T5 1.1
        ("LongT5", {"local_radius": 2, "feed_forward_proj": "gated-gelu", "num_decoder_layers": None}),
        ("LongT5", {"local_radius": 2, "encoder_attention_type": "transient-global", "global_block_size": 4}),
        ("T5", {"feed_forward_proj": "gated-silu", "num_decoder_layers": None, "layer_norm_epsilon": 0.1}),
    ],
)
def test_logits_and_gradients(kind, options, tokens):
    theirs = hf(kind, **options)
    mine, (source, target) = from_hf(theirs), tokens
    assert isinstance(mine, T5)
    with in_float64():
        wanted = theirs(input_ids=source, decoder_input_ids=target)
    close(mine.encode(source), wanted.encoder_last_hidden_state)
    close(mine(source, target), wanted.logits)
    same_gradients(mine, theirs, mine(source, target), wanted.logits)


def test_as_it_comes_and_with_a_head_of_its_own(tokens):
    theirs = hf(exact=False)
    wanted = theirs(input_ids=tokens[0], decoder_input_ids=tokens[1]).logits
    torch.testing.assert_close(from_hf(theirs)(*tokens), wanted, rtol=0, atol=1e-5)  # their norms are float32
    theirs = hf()
    theirs.lm_head.weight = nn.Parameter(torch.randn_like(theirs.lm_head.weight))
    mine = from_hf(theirs)
    assert mine.head.weight is not mine.embedding.weight
    close(mine(*tokens), theirs(input_ids=tokens[0], decoder_input_ids=tokens[1]).logits)


def test_padding_is_a_graph(tokens):
    theirs, (source, target) = hf(), tokens
    there = torch.arange(S) < 8
    wanted = theirs(input_ids=source, decoder_input_ids=target, attention_mask=there.expand(2, S)).logits
    memory_graph = ga.from_mask(there.expand(T, S))
    close(from_hf(theirs)(source, target, ga.from_mask(there.expand(S, S)), None, memory_graph), wanted)
    assert not torch.allclose(from_hf(theirs)(source, target), wanted, atol=1e-3)


def test_a_removed_edge_changes_only_what_depends_on_it(tokens):
    mine, (source, target) = from_hf(hf()), tokens
    less = graphs.causal(T) - ga.from_edge_index([[0], [4]], num_nodes=T)
    whole = mine(source, target)

    def changed(*graphs_given):
        return ((mine(source, target, *graphs_given) - whole).abs().amax((0, 2)) > 1e-9).tolist()

    assert changed(None, less) == [False] * 4 + [True] * 3
    assert changed(None, [graphs.causal(...), graphs.causal(...), less]) == [t == 4 for t in range(T)]
    cut = graphs.cross(T, S) - ga.from_edge_index([[9], [3]], num_sources=S, num_targets=T)
    assert changed(None, None, cut) == [False] * 3 + [True] * 4
    assert all(changed(graphs.sliding_window(..., 5, causal=False)))


def test_token_by_token_with_caches(tokens):
    mine, (source, target) = from_hf(hf()), tokens
    caches, memory = [KeyValueCache() for _ in range(3)], mine.encode(source)
    with torch.no_grad():
        steps = [mine.decode(target[:, t : t + 1], memory, caches=caches) for t in range(T)]
    close(torch.cat(steps, 1), mine(source, target))


@pytest.mark.parametrize("bias", [T5Bias(2, 8, 6), ALiBi(2)], ids=lambda bias: type(bias).__name__)
def test_a_bias_made_of_each_layers_graph(bias):
    encoder, x = Encoder(2, 8, 2).double(), torch.randn(3, 6, 8, dtype=torch.float64)
    bias = bias.double()
    local, full = graphs.sliding_window(6, 3), graphs.full(6)
    by_hand = encoder.layers[1](encoder.layers[0](x, local, score_bias=bias(local)), full, score_bias=bias(full))
    close(encoder(x, [graphs.sliding_window(..., 3), full], score_bias=bias), encoder.norm(by_hand))
    close(encoder(x, full, score_bias=bias), encoder(x, full, score_bias=bias(full)))


def test_a_window_of_the_encoder_is_a_graph(tokens):
    window = from_hf(hf("LongT5", local_radius=2))
    assert [repr(layer) for layer in window.source_graph] == ["Pattern(sliding_window(..., 5, causal=False))"] * 2
    close(window(*tokens), window(*tokens, graphs.sliding_window(S, 5, causal=False)))
    assert not torch.allclose(window(*tokens), window(*tokens, graphs.full(S)), atol=1e-3)


@pytest.mark.parametrize("block", [4, 11, 12])  # the last block has 3 more tokens, is all, is not there
def test_summaries_are_sources(tokens, block):
    theirs, (source, target) = (
        hf("LongT5", local_radius=2, encoder_attention_type="transient-global", global_block_size=block),
        tokens,
    )
    mine, lengths = from_hf(theirs), torch.tensor([S, 6])
    there = (torch.arange(S) < lengths[:, None]).long()
    with in_float64():
        wanted = theirs(input_ids=source, decoder_input_ids=target, attention_mask=there).logits
    close(mine(source, target, lengths=lengths), wanted)
    window = graphs.sliding_window(S, 5, causal=False)
    less = window - ga.from_edge_index([[4], [3]], num_nodes=S)
    found = (mine.encode(source, [window, less]) - mine.encode(source)).abs().amax((0, 2)) > 1e-9
    assert found.tolist() == [t == 3 for t in range(S)]
    moved = source.index_fill(1, torch.tensor([0]), 16)  # read at once by all, or by those that are near
    reached = (mine.encode(moved) - mine.encode(source)).abs().amax((0, 2)) > 1e-9
    assert reached.tolist() == [block <= S or t <= 4 for t in range(S)]


def test_dropout_and_mode_are_theirs():
    mine = from_hf(hf(dropout_rate=0.25).float().train())
    block = mine.decoder.layers[0]
    assert (block.attention.dropout, block.branch[0].p, block.feed_forward.dropout.p, mine.dropout.p) == (0.25,) * 4
    assert mine.training
    assert {p.dtype for p in mine.parameters()} == {torch.float32}


def test_refusals(tokens):
    source, target = tokens
    model = T5(17, 8, 2, 1)
    with pytest.raises(PositionIndexError, match=r"source must be in \[0, 17\)"):
        model(source + 10, target)
    with pytest.raises(ShapeError, match="target must be an int64 or int32 tensor"):
        model(source, target.float())
    with pytest.raises(ShapeError, match="the graph has 5 targets"):
        model(source, target, None, graphs.causal(5))
    for kind, options, message in (
        ("T5", {"feed_forward_proj": "tanh"}, "the activation must be \"relu\", .* got 'tanh'"),
        ("T5", {"is_causal": False}, "is_causal = False cannot be read"),
    ):
        with pytest.raises(OptionError, match=message):
            from_hf(hf(kind, **options))
