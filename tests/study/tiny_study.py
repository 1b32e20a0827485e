"""A tiny study: 3 steps of a narrow model on 7 tokens, in this process."""

import torch

import graphattn as ga
from graphattn import study
from graphattn.study import Comparison

N, SAMPLES, HELD = 7, 83, 41
WINDOWS = {f"window {w}": ga.graphs.sliding_window(N, w, causal=False) for w in (3, 5)}


def greedy(data):
    """A module that wants more memory than there is, of seed 1 alone."""
    if torch.initial_seed() == 1:
        torch.empty(1 << 45)
    return Adding(data)


class Adding(torch.nn.Module):
    """Every node adds what it reads."""

    def __init__(self, data):
        super().__init__()
        self.table = torch.nn.Embedding(5, data.classes)

    def forward(self, inputs, graphs, places, pos):
        x = self.table(inputs)
        return x.index_add(-2, graphs[0].target, x[..., graphs[0].source, :])


def tiny_data(**changes):
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, (SAMPLES, N), generator=random)
    return study.Data(**{"inputs": tokens, "targets": tokens[:, 3] % 3, "test": HELD, **changes})


def tiny_options(**changes):
    model, training = study.Model(layers=2, width=8, heads=2, hidden=5), study.Training(batch=3)
    budgets = [study.Budget(11, 3), study.Budget(None, 3)]
    return {
        "budgets": budgets,
        "model": model,
        "training": training,
        "processes": 0,
        "seeds": 2,
        **changes,
    }


def tiny_comparison(arms, data=None, **changes):
    given = {
        name: value for name, value in tiny_options().items() if name not in ("processes", "seeds")
    }
    return Comparison("c", arms, tiny_data() if data is None else data, **{**given, **changes})


def tiny_run(out, arms=None, data=None, **changes):
    arms = {"window": ga.graphs.sliding_window(N, 3, causal=False)} if arms is None else arms
    return study.run(
        arms, tiny_data() if data is None else data, out=out, **tiny_options(**changes)
    )
