"""LongT5 with the weights of transformers': windows and summaries of its encoder are graphs."""

import pytest
import torch
from hf_table import integers, theirs
from models.from_transformers import from_transformers
from models.longt5 import LongT5
from text_models import in_float64, same

import graphattn as ga
from graphattn import graphs

S, T = 11, 7
TOKENS = integers(17, 2, S), integers(17, 2, T)


def test_a_window_of_the_encoder_is_a_graph():
    window = from_transformers(theirs("LongT5"))
    assert [repr(layer) for layer in window.source_graph] == [
        "Pattern(sliding_window(..., 5, causal=False))"
    ] * 2
    same(window(*TOKENS), window(*TOKENS, graphs.sliding_window(S, 5, causal=False)))
    assert not torch.allclose(window(*TOKENS), window(*TOKENS, graphs.full(S)), atol=1e-3)


# the last block has 3 more tokens, is all, is not there
@pytest.mark.parametrize("block", [4, 11, 12])
def test_summaries_are_sources(block):
    model = theirs("LongT5", encoder_attention_type="transient-global", global_block_size=block)
    source, target = TOKENS
    mine, lengths = from_transformers(model), torch.tensor([S, 6])
    there = (torch.arange(S) < lengths[:, None]).long()
    with in_float64():
        wanted = model(input_ids=source, decoder_input_ids=target, attention_mask=there).logits
    same(mine(source, target, lengths=lengths), wanted)
    window = graphs.sliding_window(S, 5, causal=False)
    less = window - ga.from_edge_index([[4], [3]], num_nodes=S)
    found = (mine.encode(source, [window, less]) - mine.encode(source)).abs().amax((0, 2)) > 1e-9
    assert found.tolist() == [t == 3 for t in range(S)]
    # read at once by all, or by those that are near
    moved = source.index_fill(1, torch.tensor([0]), 16)
    reached = (mine.encode(moved) - mine.encode(source)).abs().amax((0, 2)) > 1e-9
    assert reached.tolist() == [block <= S or t <= 4 for t in range(S)]


def test_a_decoder_writes_from_summaries():
    model = from_transformers(
        theirs("LongT5", encoder_attention_type="transient-global", global_block_size=4)
    )
    assert isinstance(model, LongT5)
    source, target = TOKENS
    written = model.reading(source)(target)
    same(written, model(source, target))
