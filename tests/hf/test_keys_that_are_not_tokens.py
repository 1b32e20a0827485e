"""Keys that a model chooses, compresses or reads in its own code."""

import pytest
import torch
import transformers
from sweep import tiny_model

import graphattn as ga
from graphattn.errors import OptionError


def indexed(topk):
    model, inputs = tiny_model("deepseek_v32")
    config = model.config
    config.index_topk = topk
    for part in model.modules():
        if hasattr(part, "index_topk"):
            part.index_topk = topk
    return model, inputs["input_ids"]


@pytest.mark.parametrize("topk", [3, 64])
def test_the_choice_of_an_indexer_is_combined_with_the_graph(topk):
    model, tokens = indexed(topk)
    with torch.no_grad():
        plain = model(tokens).logits
        ga.patch(model, "model")
        own = model(tokens).logits
        ga.patch(model, ga.graphs.causal(...))
        whole = model(tokens).logits
        ga.patch(model, ga.graphs.sliding_window(..., 2, causal=True))
        local = model(tokens).logits
        changed = tokens.clone()
        changed[:, 3] = 7
        moved = (model(changed).logits != local).any(-1).any(0)
    torch.testing.assert_close(own, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(whole, plain, rtol=0, atol=1e-5)
    assert moved.nonzero().flatten().tolist() == [3, 4, 5]  # two layers of a window of 2


@pytest.mark.parametrize("topk", [3, 64])
def test_an_indexer_chooses_within_each_sequence_of_a_row(topk):
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]])
    model, tokens = indexed(topk)
    ga.patch(model, ga.graphs.causal(...))
    with torch.no_grad():
        packed = model(tokens[:1], position_ids=positions).logits
        alone = [model(part).logits for part in tokens[:1].split([5, 3, 4], 1)]
    torch.testing.assert_close(packed, torch.cat(alone, 1), rtol=0, atol=1e-5)


def test_an_indexer_needs_one_graph_of_all_layers():
    model, tokens = indexed(3)
    layers = [ga.graphs.causal(...), ga.graphs.sliding_window(..., 5, causal=True)]
    ga.patch(model, layers)
    with pytest.raises(OptionError, match="chooses 3 of 12 keys by an indexer"):
        model(tokens)


def test_compressed_keys_are_refused_by_a_graph_of_tokens():
    model, inputs = tiny_model("deepseek_v4")
    plain = model(**inputs).logits
    ga.patch(model, ga.graphs.sliding_window(..., 3, causal=True))
    with pytest.raises(OptionError, match="reads 15 keys where its mask has 12 tokens"):
        model(**inputs)
    ga.patch(model, "model")
    torch.testing.assert_close(model(**inputs).logits, plain, rtol=0, atol=1e-5)


def test_a_graph_names_its_tower_where_another_is_in_its_own_code():
    config = transformers.GitConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 16,
            "patch_size": 4,
        },
    )
    model = transformers.GitForCausalLM(config)
    with pytest.raises(OptionError, match="GitSelfAttention in its own code, which no graph"):
        ga.patch(model, ga.graphs.self_loops(...))
    assert "own code" in repr(ga.patch(model, {"image_encoder": ga.graphs.full(...)}))


@pytest.mark.slow
def test_eager_attention_without_a_mask_reads_all_tokens():
    model, inputs = tiny_model("splinter")
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
        patch = ga.patch(model, "model")
        torch.testing.assert_close(model(**inputs).last_hidden_state, plain, rtol=0, atol=1e-5)
    assert {graph.name for graph in patch.layers()} == {"full(12)"}


def test_a_mask_of_one_token_beside_a_cache_is_of_all_keys():
    """MiniMax asks for one, where rows are padded."""
    torch.manual_seed(0)
    model, _ = tiny_model("minimax")
    model.set_attn_implementation("sdpa")
    tokens = torch.randint(1, 30, (2, 6))
    present = torch.ones_like(tokens)
    present[1, :3] = 0
    options = {
        "attention_mask": present,
        "max_new_tokens": 4,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    wanted = model.generate(tokens, **options).logits
    ga.patch(model, "model")
    found = model.generate(tokens, **options).logits
    assert torch.allclose(torch.stack(found), torch.stack(wanted), atol=1e-5)
