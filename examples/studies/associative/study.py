"""Associative recall: values asked by their keys, beyond a window, past sinks.

*Question.* A value is asked for by its key, at a distance that the sequence decides. Which sparse
graphs still find it?

*Data.* Eight pairs of a key and a value, then the eight keys in another order; each is asked for
its value (Arora et al. 2023, "Zoology", multi-query associative recall). 24 tokens, 10,000
sequences and 256 held out. Chance is about 1/8.

*Arms.* Causal windows of 4 and 12; a window of 4 with the first two tokens as sinks (Xiao et al.
2023); a window of 4 with two summary tokens of every block of 8. Self, all earlier tokens (full)
and random graphs of the same in-degrees by themselves.

*Model and training.* Two layers of width 32, 4 heads, relative positions that start with deviation
1; Adam 3e-3, tables .1, 1,500 batches of 32, until the loss is below .05.

*Predicted before training.* All earlier tokens (full) solve it in two layers: a value reads the key
before it, a query the value of its key. A window of 4 reaches 6 tokens back, where no pair of
another order stands for most queries: it stays well below full. Sinks carry no pair but the first:
no more than .1 above the window. Baseline: the value that a sequence has most often.

*What cannot be said.* That the windows' scores are their best: 84 of 95 trials ended at the largest
number of batches, before their loss was .05, and five seeds judge nothing. That a window of 4
cannot solve it follows from its reach, that all earlier tokens can from their runs; by how much the
others fall short is a statement about 1,500 batches. ``papers/mqar`` asks again, with verdicts.
"""

from typing import Any

import torch
from shared import chosen, possible

from graphattn.graphs import causal as every_earlier
from graphattn.graphs import global_tokens, sliding_window, sparse_fixed
from graphattn.study import Budget, Claim, Comparison, Data, Model, Study, Training
from graphattn.study.data import NOT_ASKED

PAIRS, TRAINED, TESTED = 8, 10_000, 256
LENGTH = 3 * PAIRS


def data() -> Data:
    """Keys are tokens 0 to 7, values 8 to 15; a target is the number of the value."""
    random, count = torch.Generator().manual_seed(3), TRAINED + TESTED
    keys, asked = (torch.rand(count, PAIRS, generator=random).argsort(-1) for _ in range(2))
    values = torch.randint(PAIRS, (count, PAIRS), generator=random)  # of each key
    pairs = torch.stack((keys, PAIRS + values.gather(1, keys)), -1).flatten(1)
    targets = torch.full((count, LENGTH), NOT_ASKED)
    targets[:, 2 * PAIRS :] = values.gather(1, asked)
    return Data(torch.cat((pairs, asked), 1), targets, torch.arange(count) >= TRAINED, causal=True)


def arms() -> dict[str, Any]:
    """Causal graphs of 24 tokens."""
    window = sliding_window(LENGTH, 4, causal=True)
    return {
        "window 4": window,
        "window 12": sliding_window(LENGTH, 12, causal=True),
        "window 4 and sinks": window | (global_tokens(LENGTH, (0, 1)) & every_earlier(LENGTH)),
        "window 4 and summaries": window | sparse_fixed(LENGTH, 8, 2),
    }


def baselines(pairs: Data) -> dict[str, float]:
    """What is named without a look at the keys."""
    held = pairs.split(0, None)[1]
    values = pairs.inputs[held, 1 : 2 * PAIRS : 2] - PAIRS
    right = values.mode(1, keepdim=True).values == pairs.targets[held, 2 * PAIRS :]
    return {"the most frequent value": float(right.double().mean())}


def study(quick: bool = False) -> Study:
    """One comparison; quick: the window of 4 and its controls, 300 batches."""
    given = chosen(arms(), ["window 4"] if quick else None)
    comparison = Comparison(
        "associative",
        given,
        data(),
        readout="node",
        model=Model(layers=2, width=32, heads=4, hidden=64, table_std=1.0),
        training=Training(3e-3, 0.1, "constant", 20, 32, weight_decay=0.0, stop=0.05),
        budgets=[Budget(None, 300 if quick else 1500)],
        positions=("relative",),
        controls=("self", "full", "in-degrees", "shuffled"),
    )
    claims = [
        Claim("full", "window 4", margin=0.2, because="pairs stand beyond its reach"),
        Claim(
            "window 4 and sinks", "window 4", margin=0.1, equal=True, because="sinks hold one pair"
        ),
    ]
    lines = {"associative": baselines(comparison.data)}
    return Study(
        "associative", [comparison], possible(claims, [comparison]), lines, seeds=2 if quick else 5
    )
