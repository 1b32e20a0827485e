"""Every named pattern of sequences is the graph that its paper writes, pair by pair."""

import itertools
import math

import pytest
import torch
from written_rules import mask_of

from graphattn import graphs
from graphattn.graphs.catalogue.sequence import NAMED

FIRST = {2**k for k in range(6)} | {0}
DOCUMENT = [0] * 9 + [1] * 14 + [2] * 7 + [3] * 18
BRANCH = [0] * 12 + [1] * 14 + [2] * 10 + [3] * 12
IMAGE = [-1] * 8 + [0] * 12 + [-1] * 8 + [1] * 12 + [-1] * 8
RANK = [pow(2, t, 53) for t in range(48)]  # all different: 2 generates the numbers mod 53
# images so far; they stand at 4, 18, 32
LAST_IMAGE = [sum(i % 14 == 4 for i in range(t + 1)) for t in range(40)]


def path(t):
    """Token ``t`` of a binary tree and its ancestors."""
    return {t} | (path((t - 1) // 2) if t else set())


def deepspeed(t, s):
    return s // 4 <= t // 4 and (s // 16 == t // 16 or s // 4 % 4 == 3)


def best(scores, k):
    """The k largest of each row of a matrix, the first of equals."""
    return [
        sorted(range(len(row)), key=lambda s, row=row: (-row[s], s))[:k] for row in scores.tolist()
    ]


def cosines(rows, columns, scale=1.0):
    return torch.cos(rows[:, None] * columns * scale)


def near(reach):
    return lambda t, s: abs(t - s) <= reach


TOKENS, EXPERTS = torch.arange(48), torch.arange(1, 9)
CENTROIDS = best(cosines(torch.arange(5), TOKENS), 10)
TOP = best(cosines(TOKENS, TOKENS, 0.13), 6)
MIXTURE, CHOICE = best(cosines(TOKENS[:40], EXPERTS), 2), best(cosines(EXPERTS, TOKENS[:40]), 10)

ROUTE = [max(range(3), key=lambda c: math.cos((t + 1) * (c + 1))) for t in range(48)]
BLOCKS = [sorted(range(t // 8), key=lambda c: -math.cos(t * c * 0.7))[:2] for t in range(48)]

#: Name -> (targets, sources, rule of t and s).
RULES = {
    "full": (48, 48, lambda t, s: True),
    "self only": (48, 48, lambda t, s: t == s),
    "causal": (48, 48, lambda t, s: s <= t),
    "anti-causal": (48, 48, lambda t, s: s >= t),
    "key/value cache": (12, 48, lambda t, s: s <= t + 36),
    "SDPA is_causal": (12, 48, lambda t, s: s <= t),
    "prefix LM": (48, 48, lambda t, s: s <= t or s < 16),
    "Gemma 3": (48, 48, lambda t, s: s <= t or IMAGE[t] == IMAGE[s] >= 0),
    "cross-attention": (24, 48, lambda t, s: True),
    "encoder-decoder": (48, 48, lambda t, s: s < 24 if t < 24 else s < 24 or s <= t),
    "Decision Transformer": (48, 48, lambda t, s: s <= t),
    "learned sink": (48, 49, lambda t, s: s == 0 or s - 1 <= t),
    "add_zero_attn, bias_kv": (48, 49, lambda t, s: True),
    "Mistral": (48, 48, lambda t, s: 0 <= t - s < 9),
    "FlashAttention window": (48, 48, lambda t, s: -3 <= t - s <= 9),
    "ModernBERT local": (48, 48, near(8 // 2)),
    "dilated window": (48, 48, lambda t, s: abs(t - s) <= 12 and (t - s) % 3 == 0),
    "LogSparse": (48, 48, lambda t, s: t - s in FIRST),
    "LogSparse local": (48, 48, lambda t, s: 0 <= t - s < 4 or t - s - 3 in FIRST),
    "LogSparse restart": (
        48,
        48,
        lambda t, s: s <= t and (t - s) % 16 in (0, 1, 2, 3, 4, 5, 7, 11),
    ),
    "StreamingLLM": (48, 48, lambda t, s: s <= t and (s < 4 or t - s < 9)),
    "Longformer": (48, 48, lambda t, s: abs(t - s) <= 4 or t in (0, 20) or s in (0, 20)),
    "ETC": (48, 48, lambda t, s: t < 6 or s < 6 or abs(t - s) <= 4),
    "LongT5 local": (48, 48, near(4)),
    "LongT5 TGlobal": (48, 54, lambda t, s: s >= 48 or abs(t - s) <= 4),
    "Sparse Transformer strided": (48, 48, lambda t, s: s <= t and (t - s < 7 or (t - s) % 7 == 0)),
    "Sparse Transformer strided, far head": (48, 48, lambda t, s: s <= t and (t - s) % 7 == 0),
    "Sparse Transformer fixed": (48, 48, lambda t, s: s <= t and (s // 8 == t // 8 or s % 8 >= 6)),
    "DeepSpeed fixed": (48, 48, deepspeed),
    "block-local": (48, 48, lambda t, s: t // 8 == s // 8),
    "Image Transformer 1-D": (48, 48, lambda t, s: s <= t and t // 8 - s // 8 in (0, 1)),
    "Reformer local": (48, 48, lambda t, s: (t // 8 - s // 8) % 6 in (0, 1)),
    "Llama 4 chunked": (48, 48, lambda t, s: s <= t and t // 12 == s // 12),
    "block-causal": (48, 48, lambda t, s: s // 8 <= t // 8),
    "block diffusion": (
        48,
        48,
        lambda t, s: (
            (s < 24 and t // 6 == s // 6) or (s >= 24 and (s - 24) // 6 < t // 6)
            if t < 24
            else s >= 24 and s // 6 <= t // 6
        ),
    ),
    "packed documents": (48, 48, lambda t, s: DOCUMENT[t] == DOCUMENT[s] and s <= t),
    "batched graphs": (48, 48, lambda t, s: DOCUMENT[t] == DOCUMENT[s]),
    "shared prefix": (48, 48, lambda t, s: s <= t and (s < 12 or BRANCH[t] == BRANCH[s])),
    "speculative tree": (15, 39, lambda t, s: s < 24 or s - 24 in path(t)),
    "XLNet content": (48, 48, lambda t, s: RANK[s] <= RANK[t]),
    "XLNet query": (48, 48, lambda t, s: RANK[s] < RANK[t]),
    "Flamingo": (40, 24, lambda t, s: s // 8 + 1 == LAST_IMAGE[t]),
    "per-head graphs": (
        48,
        48,
        lambda t, s: (
            t // 24 == s // 24 and t - s >= 0 and (t - s < 5 if t < 24 else t - s in (0, 5, 10, 15))
        ),
    ),
    "Routing Transformer": (48, 48, lambda t, s: s <= t and RANK[t] % 5 == RANK[s] % 5),
    "Routing Transformer, balanced": (
        48,
        48,
        lambda t, s: s <= t and any(t in c and s in c for c in CENTROIDS),
    ),
    "Routing Transformer, by centroids": (48, 48, lambda t, s: s <= t and ROUTE[t] == ROUTE[s]),
    "MoBA": (48, 48, lambda t, s: s <= t and (t // 8 == s // 8 or s // 8 in BLOCKS[t])),
    "top-k scores": (48, 48, lambda t, s: s in TOP[t]),
    "mixture of experts": (40, 8, lambda t, s: s in MIXTURE[t]),
    "expert choice": (40, 8, lambda t, s: t in CHOICE[s]),
}
CHECKED = {
    "BigBird",
    "Erdos-Renyi",
    "random keys",
    "Reformer LSH",
    "Reformer LSH, Hugging Face",
}
BY_NAME = {named.name: named for named in NAMED}


def test_every_named_pattern_is_judged_here():
    assert set(RULES) | CHECKED == set(BY_NAME)
    assert not set(RULES) & CHECKED
    assert len(BY_NAME) == len(NAMED)
    assert all(
        named.family == "sequence" and named.line and not named.line.endswith(".")
        for named in NAMED
    )


@pytest.mark.parametrize("name", RULES)
def test_named_patterns_follow_the_rule_of_their_paper(name):
    T, S, rule = RULES[name]
    assert torch.equal(BY_NAME[name].graph().mask(), mask_of(T, S, rule))


def test_big_bird():
    """Block I reads J iff |I - J| <= 1, either is the first or the last, or J is one of R(I), two
    more blocks.
    """
    mask = BY_NAME["BigBird"].graph().mask()
    layout = mask.view(12, 4, 12, 4)
    assert torch.equal(layout, layout[:, :1, :, :1].expand_as(layout))
    layout, block = layout[:, 0, :, 0], torch.arange(12)
    ends = (block == 0) | (block == 11)
    fixed = ((block[:, None] - block).abs() <= 1) | ends[:, None] | ends
    assert bool((layout | ~fixed).all())
    assert (layout & ~fixed).sum(1).tolist() == [0, *[2] * 10, 0]


def test_random_patterns():
    assert BY_NAME["random keys"].graph().in_degree.tolist() == [5] * 48
    edges = BY_NAME["Erdos-Renyi"].graph().num_edges
    assert abs(edges - 0.1 * 48**2) < 5 * math.sqrt(0.09 * 48**2)


@pytest.mark.parametrize("name", ["Reformer LSH", "Reformer LSH, Hugging Face"])
def test_reformer(name):
    """Sort by (bucket, place), cut into chunks of 8, read the own one and the one before; oneself
    only if alone.
    """
    bucket = [RANK[t] % 5 for t in range(48)]
    order = sorted(range(48), key=lambda t: (bucket[t], t))
    chunk = {t: place // 8 for place, t in enumerate(order)}
    wanted = torch.zeros(48, 48, dtype=torch.bool)
    for t, s in itertools.product(range(48), repeat=2):
        if "Hugging" in name:
            wanted[t, s] = s < t and (chunk[t] - chunk[s]) % 6 in (0, 1)
        else:
            wanted[t, s] = s < t and chunk[t] - chunk[s] in (0, 1) and bucket[t] == bucket[s]
    alone = ~wanted.any(1)
    assert torch.equal(BY_NAME[name].graph().mask(), wanted | torch.diag(alone))


def test_encoder_decoder_as_one_graph_is_a_prefix_lm():
    assert BY_NAME["encoder-decoder"].graph().equals(graphs.prefix(48, 24))


def test_a_speculative_tree_is_every_path_on_its_own():
    """What a draft token reads is what it would read if the text and its path alone had been fed,
    causally.
    """
    graph = BY_NAME["speculative tree"].graph()
    for leaf in range(7, 15):
        tokens = sorted(path(leaf))
        sources = [*range(24), *(24 + node for node in tokens)]
        assert graph.subgraph(targets=tokens, sources=sources).equals(
            graphs.causal(len(tokens), len(sources))
        )
        assert graph.subgraph(targets=[leaf]).num_edges == len(sources)
