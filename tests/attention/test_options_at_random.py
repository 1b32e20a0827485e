"""A few cases of ``tests/fuzz/fuzz_attention.py``, and a fault that it sees."""

from collections import Counter

import fuzz_attention
import pytest
from fuzz_attention import draw, wrong

import graphattn as ga


@pytest.mark.slow
def test_options_at_random_are_the_loop_over_targets():
    tally = Counter()
    for number in range(24):
        assert wrong(draw(number), number, tally) == []
    assert all(tally[backend] for backend in ("auto", "dense", "tiles", "edges", "message_passing"))


@pytest.mark.parametrize("kind", [ga.AttentionGraph, ga.PerHead])
def test_a_bias_that_is_lost_is_seen(monkeypatch, kind):
    problems = ((number, draw(number)) for number in range(200))
    chosen = (number for number, x in problems if isinstance(x.graph, kind) and "score_bias" in x.leaves)
    right = fuzz_attention.check
    monkeypatch.setattr(
        fuzz_attention, "check", lambda q, k, v, g, bias, *rest, **o: right(q, k, v, g, None, *rest, **o)
    )
    assert any(wrong(draw(next(chosen)), 0, Counter()) for _ in range(8))
