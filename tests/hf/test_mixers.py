"""Layers that mix tokens without attention: found by numbers, named, and restarted at each document."""

import warnings

import pytest
import torch
import transformers
from families import FAMILIES
from sweep import tiny_model as tiny_of_type
from tiny_models import tiny_model

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.hf.mixing import _FOUND, first_apart, listed
from graphattn.hf.modules import mixers

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
HYBRIDS = {
    "Qwen3NextGatedDeltaNet": lambda: transformers.Qwen3NextConfig(
        **SIZES,
        num_hidden_layers=4,
        head_dim=8,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    ),
    "Lfm2ShortConv": lambda: transformers.Lfm2Config(
        **SIZES, num_hidden_layers=4, layer_types=["conv"] * 3 + ["full_attention"]
    ),
}
# in these the mixer is beside or within attention, or keeps a convolution around another module
OTHERS = {
    "FalconH1Mixer": lambda: transformers.FalconH1Config(
        **SIZES,
        num_hidden_layers=2,
        head_dim=8,
        mamba_d_ssm=64,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        mamba_chunk_size=8,
    ),
    "ZayaCCAProjection": lambda: transformers.ZayaConfig(
        **SIZES, num_hidden_layers=2, head_dim=8, num_experts=4, num_experts_per_tok=1
    ),
    "RecurrentGemmaRecurrentBlock": lambda: transformers.RecurrentGemmaConfig(
        **SIZES, num_hidden_layers=3, head_dim=8, lru_width=32
    ),
}
ALL = HYBRIDS | OTHERS
DOCUMENTS = (5, 3, 4, 3)


def hybrid(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(ALL[name]()).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def row():
    """Packed documents in two rows, and their positions."""
    tokens = torch.randint(1, 60, (2, sum(DOCUMENTS)), generator=torch.Generator().manual_seed(1))
    return tokens, torch.cat([torch.arange(n) for n in DOCUMENTS]).expand(2, -1)


def window():
    return ga.graphs.sliding_window(..., 3, causal=True)


@pytest.mark.parametrize("name", HYBRIDS)
def test_what_stands_in_the_place_of_attention_is_named(name):
    model = hybrid(name)
    assert listed(mixers(model)) == f"{name} x 3"
    patch = ga.patch(model, window())
    assert f"{name} x 3 may mix tokens" in repr(patch)
    assert listed(patch.mixers) == f"{name} x 3"
    assert f"{name} x 3 mix tokens" in repr(patch)
    with pytest.warns(UserWarning, match=f"{name} x 3 mix tokens"):
        patch.layers(9)
    assert f"{name} x 3 mix tokens" in str(ga.hf.audit_config(HYBRIDS[name]()))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_packed_documents_are_as_alone(name, checkpointed):
    model = hybrid(name).train()
    for part in model.modules():
        if isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0
    tokens, positions = row()
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    patch = ga.patch(model, window())
    output = model(tokens, position_ids=positions, use_cache=False).logits
    assert name in listed(patch.mixers)
    parts = tokens.split(DOCUMENTS, 1)
    wanted = torch.cat([model(part, use_cache=False).logits for part in parts], 1)
    torch.testing.assert_close(output, wanted, rtol=0, atol=2e-5)

    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(2))
    (output * weight).sum().backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert len(found) > 10
    model.zero_grad()
    (wanted * weight).sum().backward()
    for key, gradient in found.items():
        other = dict(model.named_parameters())[key].grad
        scale = float(other.abs().max())
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-5 + 1e-5 * scale)


def test_lengths_of_sequences_beside_the_positions_change_nothing():
    """As ``DataCollatorWithFlattening`` passes them."""
    tokens, positions = row()
    ends = torch.tensor([0, *DOCUMENTS]).cumsum(0).int()
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 5, "max_length_k": 5}
    index = torch.arange(len(DOCUMENTS)).repeat_interleave(torch.tensor(DOCUMENTS))[None].int()
    for name in ALL:
        model = hybrid(name)
        ga.patch(model, window())
        given = {"input_ids": tokens[:1], "position_ids": positions[:1]}
        with torch.no_grad():
            plain = model(**given).logits
            assert torch.equal(model(**given, **lengths, seq_idx=index).logits, plain), name


def test_two_calls_are_followed_by_one_backward_pass():
    name = "Lfm2ShortConv"
    tokens, positions = row()
    others = torch.cat([torch.arange(n) for n in (4, 6, 5)]).expand(2, -1)
    gradients = []
    for checkpointed in (False, True):
        model = hybrid(name).train()
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        ga.patch(model, window())
        loss = 0.0
        for number in (positions, others):
            loss = loss + model(tokens, position_ids=number, use_cache=False).logits.square().sum()
        loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mobilebert", "MobileBertEmbeddings x 1"),  # embeddings of three tokens
        ("zamba", "ZambaMambaMixer x 4"),  # its attention reads states and embeddings
    ],
)
def test_what_mixes_is_told_from_what_does_not(name, found):
    model, _ = tiny_of_type(name)
    assert listed(ga.patch(model, window()).mixers) == found


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_cache_of_a_packed_row_is_not_continued(name):
    model = hybrid(name)
    ga.patch(model, window())
    tokens, positions = row()
    with torch.no_grad():
        cache = model(tokens, position_ids=positions, use_cache=True).past_key_values
        with pytest.raises(OptionError, match=f"{name} x 3 have no state"):
            model(tokens[:, :1], past_key_values=cache)
        whole = model(tokens).logits
        cache = model(tokens[:, :9], use_cache=True).past_key_values
        steps = [
            model(tokens[:, place : place + 1], past_key_values=cache).logits
            for place in range(9, tokens.shape[1])
        ]
    torch.testing.assert_close(torch.cat(steps, 1), whole[:, 9:], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_graph_that_keeps_neighbours_apart_is_refused(name):
    tokens, _ = row()
    tree = ga.graphs.ancestors(torch.tensor([-1, 0, 1, 2, 3, 4, 2, 6, 7, 8, 9, 10, 11, 12, 13]))
    for graph in (tree, ga.graphs.self_loops(...), lambda input_ids: tree):
        model = hybrid(name)
        ga.patch(model, graph)
        with pytest.raises(OptionError, match=f"{name} x 3 mix tokens along the row"):
            model(tokens)
        ga.patch(model, {"self_attn": graph})  # of attention alone, by name
        model(tokens)


@pytest.mark.parametrize(
    ("graph", "token"),
    [
        (ga.graphs.causal(7), None),
        (ga.graphs.full(7), None),
        (ga.graphs.sliding_window(7, 2, causal=True), None),
        (ga.graphs.self_loops(7), 1),
        (ga.graphs.documents(torch.tensor([0, 0, 0, 1, 1, 2, 2]), causal=True), 3),
        (ga.graphs.ancestors(torch.tensor([-1, 0, 1, 0, 3])), 3),
        # tokens read later ones, and the last the first: a path leads through the last
        (ga.graphs.causal(7).reverse() | ga.from_edge_index([[0], [6]], num_nodes=7), None),
        # three new tokens after four in a cache: the last follows the first of them
        (ga.graphs.ancestors(torch.tensor([-1, 0, 1, 2, 3, 4, 4])).subgraph(targets=[4, 5, 6]), 6),
        (ga.graphs.causal(3, 7), None),
    ],
)
def test_a_token_without_a_path_from_the_one_before_it_is_found(graph, token):
    assert first_apart(graph) == token


def test_unpatching_gives_the_modules_back():
    model = hybrid("Lfm2ShortConv")
    tokens, positions = row()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        wanted = model(tokens, position_ids=positions).logits
        with ga.patched(model, window()):
            assert not torch.equal(model(tokens, position_ids=positions).logits, wanted)
        assert torch.equal(model(tokens, position_ids=positions).logits, wanted)
    assert all("forward" not in vars(part) for part in model.modules())


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", FAMILIES)
def test_models_whose_layers_are_all_attention_have_none(family):
    model = tiny_model(family)
    assert mixers(model) == {}
    if model.main_input_name == "input_ids":
        assert ga.patch(model, "model").mixers == {}


def test_what_mixes_is_found_whatever_its_weights():
    """Weights of zero at the first call, loaded later, hide no module, in this model or another."""
    model = hybrid("Lfm2ShortConv")
    tokens, positions = row()
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.data.zero_()
    _FOUND.pop(frozenset(map(type, model.modules())), None)
    patch = ga.patch(model, window())
    model(tokens, position_ids=positions)
    assert not any(x.any() for x in model.parameters())
    assert listed(patch.mixers) == "Lfm2ShortConv x 3"
    model.load_state_dict(weights)
    packed = model(tokens[:1], position_ids=positions[:1]).logits[:, 5:8]
    assert torch.allclose(packed, model(tokens[:1, 5:8]).logits, atol=1e-4)


@pytest.mark.parametrize("name", ["Lfm2ShortConv", "Qwen3NextGatedDeltaNet"])
def test_a_padded_row_goes_on_with_its_cache(name):
    """It is one sequence, whose state the cache holds."""
    model = hybrid(name)
    ga.patch(model, ga.graphs.causal(...))
    tokens, _ = row()
    present = torch.ones(2, 7, dtype=torch.int64)
    present[1, :3] = 0
    positions = (present.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        first = model(
            tokens[:, :6],
            attention_mask=present[:, :6],
            position_ids=positions[:, :6],
            use_cache=True,
        )
        last = model(
            tokens[:, 6:7],
            attention_mask=present,
            position_ids=positions[:, 6:],
            past_key_values=first.past_key_values,
        ).logits[1, -1]
        alone = model(tokens[1:, 3:7]).logits[0, -1]
    assert torch.allclose(last, alone, atol=1e-4)


def test_indices_that_were_made_in_inference_mode_are_trained_with():
    model = hybrid("Lfm2ShortConv")
    ga.patch(model, window())
    tokens, positions = row()
    with torch.inference_mode():
        model(tokens, position_ids=positions)
    model(tokens, position_ids=positions).logits.sum().backward()
    assert all(x.grad is not None for x in model.model.layers[0].parameters())
