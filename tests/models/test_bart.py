"""BART, mBART and Whisper with the weights of transformers' own: two graphs and one between them."""

import pytest
import torch
from text_models import all_gradients, in_float64, same, shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, PositionIndexError, ShapeError
from graphattn.models import BART, Whisper, from_hf, generate
from graphattn.models.whisper import sinusoids
from graphattn.nn import KeyValueCache

transformers = pytest.importorskip("transformers", minversion="5.0")

B, S, T, V = 2, 9, 7, 13
SMALL = {
    "vocab_size": V,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
MODELS = {
    "bart": ("Bart", {"scale_embedding": True, "max_position_embeddings": 11}),
    "bart, plain": ("Bart", {"activation_function": "relu", "max_position_embeddings": 11}),
    "mbart": ("MBart", {"scale_embedding": True, "max_position_embeddings": 11}),
    "whisper": ("Whisper", {"num_mel_bins": 5, "max_source_positions": S, "max_target_positions": 11}),
}


def theirs(name="bart", training=False, **more):
    torch.manual_seed(0)
    kind, options = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **options, **more})
    with in_float64():
        return shaken(getattr(transformers, f"{kind}ForConditionalGeneration")(config), training)


def given(name="bart"):
    draw = torch.Generator().manual_seed(1)
    source, target = (torch.randint(V, (B, n), generator=draw) for n in (S, T))
    return (torch.randn(B, 5, 2 * S, generator=draw).double() if name == "whisper" else source), target


def logits(model, source, target, **options):
    with in_float64():
        return model(source, decoder_input_ids=target, **options).logits


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name):
    model, (source, target) = theirs(name), given(name)
    mine = from_hf(model)
    output, expected = mine(source, target), logits(model, source, target)
    same(output, expected)
    found, wanted = all_gradients(mine, output), all_gradients(model, expected)
    more = 0 if name == "whisper" else 2 * 2 * 12  # rows of positions that nobody reads
    assert len(wanted) - len(found) == more
    assert not wanted[:more].any()
    same(found, wanted[more:], 1e-11)
    same(mine(source[1], target[1]), output[1])


@pytest.mark.parametrize("name", ["bart", "whisper"])
def test_token_by_token_and_what_generate_writes(name):
    model, (source, target) = theirs(name), given(name)
    mine = from_hf(model)
    caches, memory = [KeyValueCache() for _ in range(3)], mine.encode(source)
    steps = [mine.decode(target[:, t : t + 1], memory, caches=caches) for t in range(T)]
    same(torch.cat(steps, 1), mine(source, target))
    written = generate(mine.reading(source), target[:, :1], max_new_tokens=5)
    for t in range(1, 6):
        assert torch.equal(written[:, t], logits(model, source, written[:, :t])[:, -1].argmax(-1))


def test_padding_is_lengths():
    model, (source, target) = theirs(), given()
    lengths = torch.tensor([S, 5])
    there = (torch.arange(S) < lengths[:, None]).long()
    expected = logits(model, source, target, attention_mask=there)
    mine = from_hf(model)
    same(mine(source, target, lengths=lengths), expected)
    assert not torch.allclose(mine(source, target), expected)
    written = generate(mine.reading(source, lengths=lengths), target[:, :1], max_new_tokens=3)
    alone = generate(mine.reading(source[1:, :5]), target[1:, :1], max_new_tokens=3)
    assert torch.equal(written[1:], alone)


@pytest.mark.parametrize("name", ["bart", "whisper"])
def test_a_removed_edge_changes_only_what_depends_on_it(name):
    mine, (source, target) = from_hf(theirs(name)), given(name)
    whole = mine(source, target)

    def changed(*graphs_given):
        return ((mine(source, target, *graphs_given) - whole).abs().amax((0, 2)) > 1e-9).tolist()

    less = graphs.causal(T) - ga.from_edge_index([[0], [4]], num_nodes=T)
    assert changed(None, less) == [False] * 4 + [True] * 3
    assert changed(None, [graphs.causal(...), graphs.causal(...), less]) == [t == 4 for t in range(T)]
    cut = graphs.cross(T, S) - ga.from_edge_index([[8], [3]], num_sources=S, num_targets=T)
    assert changed(None, None, cut) == [False] * 3 + [True] * 4
    assert all(changed(graphs.sliding_window(..., 5, causal=False)))


@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropout_is_where_theirs_is(place):
    off = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    source, target = given()
    model = theirs(training=True, **{**off, place: 1.0})
    mine = from_hf(model)
    same(mine(source, target), logits(model, source, target))
    assert not torch.allclose(mine(source, target), mine.eval()(source, target))


def test_positions_of_frames_and_sizes_of_the_papers():
    torch.testing.assert_close(sinusoids(7, 12), transformers.models.whisper.modeling_whisper.sinusoids(7, 12))
    with torch.device("meta"):
        base, tiny = BART(), Whisper()
    assert sum(p.numel() for p in base.parameters()) == 139_420_416 - 2 * 2 * 768
    assert sum(p.numel() for p in tiny.parameters()) == 37_760_640
    small = Whisper(V, 12, 3, 1, num_mels=5, max_frames=S, max_len=T)
    assert [name for name, p in small.named_parameters() if not p.requires_grad] == ["frame_position.weight"]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda m, s, t: m(s + V, t), PositionIndexError, r"source must be in \[0, 13\)"),
        (lambda m, s, t: m(s, t.double()), ShapeError, "target must be an int64 or int32 tensor"),
        (lambda m, s, t: m(s, t.repeat(1, 2)), PositionIndexError, r"positions must be in \[0, 11\)"),
        (lambda m, s, t: m(s, t, lengths=torch.tensor([S, 0])), ShapeError, "lengths must be a tensor"),
        (lambda m, s, t: from_hf(theirs("whisper"))(s, t), ShapeError, "sound must be a spectrogram"),
        (lambda m, s, t: from_hf(theirs(encoder_layerdrop=0.1)), OptionError, "encoder_layerdrop = 0.1 cannot be read"),
        (lambda m, s, t: from_hf(theirs(decoder_attention_heads=2)), OptionError, "decoder_attention_heads = 2"),
        (lambda m, s, t: from_hf(theirs(decoder_ffn_dim=5)), OptionError, "decoder_ffn_dim = 5"),
        (lambda m, s, t: from_hf(theirs("whisper", apply_spec_augment=True)), OptionError, "apply_spec_augment = True"),
    ],
)
def test_refusals(use, error, message):
    with pytest.raises(error, match=message):
        use(BART(V, 12, 3, 1, max_len=11), *given())


def test_a_head_of_its_own_and_what_has_no_place():
    model, (source, target) = theirs(), given()
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    same(from_hf(model)(source, target), logits(model, source, target))
    model.final_logits_bias += 1
    with pytest.raises(OptionError, match="final_logits_bias must be 0"):
        from_hf(model)
    with pytest.raises(OptionError, match="must have one table of tokens"):
        from_hf(theirs(tie_word_embeddings=False))
