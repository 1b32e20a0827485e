"""Text: characters of Python's own sources, along causal graphs of as many edges.

*Question.* With as many edges a token, is it better to read the last characters, every so many of
them, or ever sparser ones? How far is each from all that came before?

*Data.* Modules of the standard library that runs this, cut to stretches of 64 characters; each
character is asked for the next one. Printable ones have a token each, the rest share one. Two
modules are held out as a whole. The text differs between versions of Python, and so does the key of
a trial.

*Arms.* A window of 7; LogSparse (Li et al. 2019: the powers of 2 back); strided (Child et al. 2019)
by 4; a window of
16. Self, all earlier characters (full) and random graphs of the same in-degrees; edges are in the
    report.

*Model and training.* Two layers of width 32, 4 heads, relative positions; AdamW, one cycle up to
3e-3, 800 batches of 16.

*Predicted before training, in bits per character.* full < window 16 < window 7 < LogSparse <
in-degrees of window 7: near characters matter most, and far ones a little. Baselines: counts of
characters, and of pairs of them.

*What cannot be said.* That near characters suffice, or that sparse beats full: all orders were
judged at one early budget, 800 batches, where every arm was still learning. They say what is
learned first. Two modules are held out, the same for all seeds: intervals are of training alone.
"""

import os
from pathlib import Path
from typing import Any

import torch
from shared import chosen, possible

from graphattn.graphs import logsparse, sliding_window, sparse_strided
from graphattn.study import Budget, Claim, Comparison, Data, Model, Study, Training

LENGTH = 64
MODULES = (
    "argparse",
    "ast",
    "calendar",
    "configparser",
    "copy",
    "csv",
    "difflib",
    "enum",
    "fractions",
    "heapq",
)
HELD = ("random", "textwrap")


def stretches(module: str) -> torch.Tensor:
    """int64 (n, 65): the module's characters as tokens 1 to 96, others 0."""
    text = (Path(os.__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    token = torch.tensor([ord(c) - 31 if 31 < ord(c) < 127 else 96 * (c == "\\n") for c in text])
    return token.unfold(0, LENGTH + 1, LENGTH)


def data() -> Data:
    """All stretches, and which are of modules that are held out."""
    parts = {name: stretches(name) for name in (*MODULES, *HELD)}
    every = torch.cat(list(parts.values()))
    held = torch.cat([torch.full((len(part),), name in HELD) for name, part in parts.items()])
    return Data(every[:, :-1].contiguous(), every[:, 1:].contiguous(), held, causal=True)


def arms() -> dict[str, Any]:
    """Causal graphs of 64 characters."""
    return {
        "window 7": sliding_window(LENGTH, 7, causal=True),
        "LogSparse": logsparse(LENGTH),
        "strided 4": sparse_strided(LENGTH, 4),
        "window 16": sliding_window(LENGTH, 16, causal=True),
    }


def baselines(text: Data) -> dict[str, float]:
    """Bits per character of counts, each one more than it was: of the character, and of those after
    the one before.
    """
    (before, after), (train, test) = (text.inputs, text.targets), text.split(0, None)
    counts = torch.ones(int(before.max()) + 1, text.classes)
    seen = torch.ones(before[train].numel())
    counts.index_put_((before[train].flatten(), after[train].flatten()), seen, accumulate=True)
    single, pair = counts.sum(0, keepdim=True).expand_as(counts), counts
    scores = {"counts of characters": single, "counts of pairs of characters": pair}
    bits = {
        name: -(x / x.sum(1, keepdim=True)).log2()[before[test], after[test]].mean()
        for name, x in scores.items()
    }
    return {name: float(x) for name, x in bits.items()}


def study(quick: bool = False) -> Study:
    """One comparison; quick: the window of 7, LogSparse and controls, 150 batches."""
    given = chosen(arms(), ["window 7", "LogSparse"] if quick else None)
    comparison = Comparison(
        "text",
        given,
        data(),
        readout="node",
        model=Model(layers=2, width=32, heads=4, hidden=64),
        training=Training(rate=3e-3, batch=16),
        budgets=[Budget(None, 150 if quick else 800)],
        positions=("relative",),
        controls=("self", "full", "in-degrees"),
        metric="bits",
    )
    order = [
        ("full", "window 16"),
        ("window 16", "window 7"),
        ("window 7", "LogSparse"),
        ("LogSparse", "in-degrees of window 7"),
    ]
    because = "near characters matter most"
    claims = possible([Claim(a, b, because=because) for a, b in order], [comparison])
    return Study(
        "text", [comparison], claims, {"text": baselines(comparison.data)}, seeds=2 if quick else 10
    )
