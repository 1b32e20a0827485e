"""A patched model whose edges are chosen by queries and keys."""

import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM

import graphattn as ga
from graphattn.errors import GraphError, LoaderError, OptionError
from graphattn.graphs import block_local, causal, top_k

OWN = block_local(..., 3, causal=True)
MOBA = top_k(..., 1, blocks=3, within=causal(...) - OWN) | OWN
TOKENS = torch.randint(3, 30, (2, 14), generator=torch.Generator().manual_seed(0))


def logits(model, tokens, **given):
    with torch.no_grad():
        return model(tokens, **given).logits


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama", auto=AutoModelForCausalLM)


def test_all_sources_chosen_are_the_model_itself_and_a_few_are_not(model):
    plain = logits(model, TOKENS)
    with ga.hf.patched(model, top_k(..., 14, within=causal(...))):
        assert torch.allclose(logits(model, TOKENS), plain, rtol=0, atol=1e-12)
    with ga.hf.patched(model, MOBA) as patch:
        chosen = logits(model, TOKENS)
        assert not ga.leaks(patch.layers())
    # of one block before, none is left out
    assert torch.allclose(chosen[:, :6], plain[:, :6], rtol=0, atol=1e-12)
    assert not torch.allclose(chosen[:, 6:], plain[:, 6:], atol=1e-3)


def test_a_row_gives_what_it_gives_alone_with_padding_on_either_side(model):
    with ga.hf.patched(model, MOBA):
        both = logits(model, TOKENS)
        assert torch.allclose(both[1:], logits(model, TOKENS[1:]), rtol=0, atol=1e-12)
        for there in (range(11), range(3, 14)):
            mask = torch.ones_like(TOKENS)
            mask[1] = torch.tensor([place in there for place in range(14)]).long()
            position_ids = (mask.cumsum(1) - 1).clamp(min=0)
            padded = logits(model, TOKENS, attention_mask=mask, position_ids=position_ids)
            alone = logits(model, TOKENS[1:, there.start : there.stop])
            assert torch.allclose(padded[1, there.start : there.stop], alone[0], rtol=0, atol=1e-12)
            with pytest.raises(OptionError, match="sequences of one length"):
                model(TOKENS, attention_mask=mask, output_attentions=True)


def test_generate_continues_with_a_cache_as_without(model):
    options = {"max_new_tokens": 5, "do_sample": False}
    with ga.hf.patched(model, MOBA):
        cached, fresh = (model.generate(TOKENS, use_cache=use, **options) for use in (True, False))
    assert torch.equal(cached, fresh)
    assert not torch.equal(cached, model.generate(TOKENS, **options))
    with ga.hf.patched(model, top_k(..., 3)), pytest.raises(GraphError, match="not written yet"):
        model.generate(TOKENS, **options)


def test_weights_are_zero_where_an_edge_is_not_chosen(model):
    with ga.hf.patched(model, top_k(..., 2, within=causal(...))):
        (first, *_) = model(TOKENS, output_attentions=True).attentions
    dense = first.dense()
    assert torch.allclose(dense.sum(-1), torch.ones(()).double())
    assert ((dense > 0).sum(-1) == torch.arange(1, 15).clamp(max=2)).all()


def test_a_pattern_is_saved_with_the_model_but_no_function(model, tmp_path):
    with ga.hf.patched(model, MOBA):
        model.save_pretrained(tmp_path / "saved")
        chosen = logits(model, TOKENS)
    again = ga.hf.from_pretrained(tmp_path / "saved").double().eval()
    assert torch.allclose(logits(again, TOKENS), chosen, rtol=0, atol=1e-12)
    with pytest.raises(GraphError, match="has a function, which cannot be saved"):
        ga.convert.graph_to_dict(top_k(..., 2, score=torch.matmul))
    with ga.hf.patched(model, top_k(..., 2, score=torch.matmul)):
        model.save_pretrained(tmp_path / "saved")
    with pytest.raises(LoaderError, match="saved with the function top_k"):
        ga.hf.from_pretrained(tmp_path / "saved")
