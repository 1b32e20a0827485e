"""A few cases of ``tests/fuzz/fuzz_attention.py``, and a fault that it sees."""

from collections import Counter
from dataclasses import replace

import fuzz_attention
import pytest
import torch
from fuzz_attention import draw, wrong

import graphattn as ga


@pytest.mark.slow
def test_options_at_random_are_the_loop_over_targets():
    tally = Counter()
    for number in range(24):
        assert wrong(draw(number), number, tally) == []
    assert all(tally[backend] for backend in ("auto", "dense", "tiles", "edges", "message_passing"))


def narrow(problem):
    """In float64 and at most eight channels: one width of the edge kernels to compile, not one for
    each case.
    """
    leaves = {name: x if name == "score_bias" else x[..., :8] for name, x in problem.leaves.items()}
    leaves = {name: x.detach().double().requires_grad_() for name, x in leaves.items()}
    return replace(problem, leaves=leaves, dtype=torch.float64)


@pytest.mark.parametrize("kind", [ga.AttentionGraph, ga.PerHead])
def test_a_bias_that_is_lost_is_seen(monkeypatch, kind):
    problems = (draw(number) for number in range(200))
    chosen = (
        x
        for x in problems
        if isinstance(x.graph, kind) and "score_bias" in x.leaves and not x.dropout_p
    )
    right = fuzz_attention.inputs_of
    monkeypatch.setattr(
        fuzz_attention,
        "inputs_of",
        lambda q, k, v, g, bias, *rest, **o: right(q, k, v, g, None, *rest, **o),
    )
    assert any(wrong(narrow(next(chosen)), 0, Counter()) for _ in range(8))
