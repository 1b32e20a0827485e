"""T5 with the weights of transformers': equal in logits and every gradient, along any graph, token
by token.
"""

import pytest
import torch
from hf_table import theirs, transformers
from text_models import in_float64

import graphattn as ga
from graphattn import graphs
from graphattn.errors import PositionIndexError, ShapeError
from graphattn.models import T5, from_transformers
from graphattn.nn import KeyValueCache

S, T = 11, 7


def test_fresh_weights_spread_as_theirs():
    wide = {
        "d_model": 64,
        "d_kv": 32,
        "d_ff": 96,
        "num_heads": 3,
        "num_layers": 1,
        "num_decoder_layers": 1,
    }
    config = transformers.T5Config(vocab_size=17, **wide)
    wanted = from_transformers(transformers.T5ForConditionalGeneration(config)).state_dict()
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


def test_padding_is_a_graph(tokens):
    model, (source, target) = theirs("T5"), tokens
    there = torch.arange(S) < 8
    with in_float64():
        wanted = model(
            input_ids=source, decoder_input_ids=target, attention_mask=there.expand(2, S)
        ).logits
    memory_graph = ga.from_mask(there.expand(T, S))
    close(
        from_transformers(model)(
            source, target, ga.from_mask(there.expand(S, S)), None, memory_graph
        ),
        wanted,
    )
    assert not torch.allclose(from_transformers(model)(source, target), wanted, atol=1e-3)


def test_a_removed_edge_changes_only_what_depends_on_it(tokens):
    mine, (source, target) = from_transformers(theirs("T5")), tokens
    less = graphs.causal(T) - ga.from_edge_index([[0], [4]], num_nodes=T)
    whole = mine(source, target)

    def changed(*graphs_given):
        return ((mine(source, target, *graphs_given) - whole).abs().amax((0, 2)) > 1e-9).tolist()

    assert changed(None, less) == [False] * 4 + [True] * 3
    assert changed(None, [graphs.causal(...), graphs.causal(...), less]) == [
        t == 4 for t in range(T)
    ]
    cut = graphs.cross(T, S) - ga.from_edge_index([[9], [3]], num_sources=S, num_targets=T)
    assert changed(None, None, cut) == [False] * 3 + [True] * 4
    assert all(changed(graphs.sliding_window(..., 5, causal=False)))


def test_token_by_token_with_caches(tokens):
    mine, (source, target) = from_transformers(theirs("T5")), tokens
    caches, memory = [KeyValueCache() for _ in range(3)], mine.encode(source)
    with torch.no_grad():
        steps = [mine.decode(target[:, t : t + 1], memory, caches=caches) for t in range(T)]
    close(torch.cat(steps, 1), mine(source, target))


def test_refusals(tokens):
    source, target = tokens
    model = T5(17, 8, 2, 1)
    with pytest.raises(PositionIndexError, match=r"source must be in \[0, 17\)"):
        model(source + 10, target)
    with pytest.raises(ShapeError, match="the graph has 5 targets"):
        model(source, target, None, graphs.causal(5))
