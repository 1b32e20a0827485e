"""Llama in transformers: grouped heads, rotary positions scaled or not."""

import torch
from hf_table import LLAMA3, theirs
from text_models import changed, in_float64, same

import graphattn as ga
from graphattn import graphs
from graphattn.models import GPT, from_transformers

B, N, V = 3, 9, 13


def tokens():
    return torch.randint(V, (B, N), generator=torch.Generator().manual_seed(1))


@in_float64()
def logits(model, *args, **options):
    return model(*args, **options).logits


def test_as_it_comes_it_rounds_to_float32_in_between():
    model, given = theirs("Llama", rope_parameters=LLAMA3), tokens()
    same(from_transformers(model)(given), model(given).logits, 1e-5)


def test_another_graph_is_another_mask_there():
    model, given = theirs("Llama", attn_implementation="sdpa"), tokens()
    mine, strided = from_transformers(model), graphs.causal(N) & graphs.sparse_strided(N, 3)
    same(mine(given, strided), logits(model, given, attention_mask=strided.mask()[None, None]))
    less = graphs.causal(N) - ga.from_edge_index([[2], [6]], num_sources=N, num_targets=N)
    assert (
        changed(mine(given), mine(given, [graphs.causal(N), less]))
        == [False] * 6 + [True] + [False] * 2
    )


def test_sizes_of_the_paper():
    with torch.device("meta"):
        assert sum(p.numel() for p in GPT.llama().parameters()) == 6_738_415_616
        seventy = GPT.llama(32000, 8192, 64, 80, 28672, num_kv_heads=8)  # Llama 2 70B
        assert sum(p.numel() for p in seventy.parameters()) == 68_976_648_192
