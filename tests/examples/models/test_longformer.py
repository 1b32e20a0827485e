"""Longformer with the weights of transformers' own: global tokens whose queries, keys and values
are others.
"""

import pytest
import torch
from hf_table import theirs
from models.from_transformers import from_transformers
from models.longformer import Longformer, layer_graphs
from text_models import changed, in_float64, same

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphIndexError, OptionError

B, N, V, PAD = 2, 15, 13, 1


def given():
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, V, (B, N), generator=draw)
    tokens[0, 4] = PAD  # in the middle, and read: it has no position of its own
    return tokens, torch.randint(3, (B, N), generator=draw)


def run(model, tokens, chosen, **options):
    """Theirs, with the same global tokens in every example, or other ones in each."""
    mask = torch.zeros_like(tokens)
    for row, places in zip(
        mask, chosen if isinstance(chosen, list) else [chosen] * len(mask), strict=True
    ):
        row[list(places)] = 1
    with in_float64():
        return model(tokens, global_attention_mask=mask if mask.any() else None, **options)


def test_examples_of_several_lengths_with_global_tokens_of_their_own():
    model, (tokens, _) = theirs("Longformer"), given()
    mine, lengths, chosen = from_transformers(model), (N, 11), [(0, 7), (3,)]
    real = torch.arange(N) < torch.tensor(lengths)[:, None]
    expected = run(model, tokens, chosen, attention_mask=real.long(), position_ids=None).logits[
        real
    ]
    alone = [
        [pattern(n) for pattern in layer_graphs((5, 5, 9), own)]
        for own, n in zip(chosen, lengths, strict=True)
    ]
    packed = [ga.disjoint_union([a, b]) for a, b in zip(*alone, strict=True)]
    is_real = tokens != PAD
    at = (is_real.cumsum(-1) * is_real + PAD)[real]
    same(mine(tokens[real], packed, global_tokens=(0, 7, N + 3), positions=at), expected)
    padded = run(model, tokens, (0, 7), attention_mask=real.long()).logits[real]
    same(mine(tokens, global_tokens=(0, 7), lengths=torch.tensor(lengths))[real], padded)
    assert not torch.allclose(mine(tokens, global_tokens=(0, 7))[real], padded)


def test_what_depends_on_a_removed_edge_and_of_other_projections():
    mine, (tokens, _) = from_transformers(theirs("Longformer")), given()
    last = graphs.sliding_window(N, 9, causal=False) | graphs.global_tokens(N, (2,))
    before = list(layer_graphs((5, 5), (2,)))

    def out(graph, chosen=(2,)):
        return mine(tokens, [*before, graph], global_tokens=chosen)

    whole = out(last)
    same(whole, mine(tokens, global_tokens=(2,)), 0.0)
    for target, source in ((2, 14), (7, 2), (7, 9)):  # of the global token, to it, beside it
        less = last - ga.from_edge_index([[source], [target]], num_nodes=N)
        assert changed(whole, out(less)) == [t == target for t in range(N)]
    assert all(changed(whole, out(last, ())))  # the same edges without other projections
    heads = ga.PerHead(
        (last, last, graphs.sliding_window(N, 3, causal=False) | graphs.global_tokens(N, (2,)))
    )
    assert changed(whole, out(heads)) == [t != 2 for t in range(N)]
    with torch.no_grad():
        mine.of_global[2].v_proj.bias += 1
    assert changed(whole, out(last)) == [t == 2 for t in range(N)]


def test_refusals_and_sizes_of_the_paper():
    with torch.device("meta"):
        base = Longformer(vocab_size=50265, max_len=4098, num_types=1, padding_idx=PAD)
    assert sum(p.numel() for p in base.parameters()) == 148_659_456
    model = Longformer((3,), num_layers=1, vocab_size=V, embed_dim=8, num_heads=2, max_len=N)
    with pytest.raises(GraphIndexError, match="15"):
        model(given()[0], global_tokens=(N,))
    with pytest.raises(OptionError, match="requires a model built with pooler=True"):
        from_transformers(theirs("Longformer")).pooled(torch.randn(B, N, 12).double())
