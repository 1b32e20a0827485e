"""Length extrapolation: trained on 24 places, asked on 72, with five kinds of positions.

*Question.* Which positions go on working at lengths that were not trained? And is it the positions,
or that more tokens are read?

*Data.* Sequences of 72 tokens of 8 kinds; each depends on the two before it (a table of 64
distributions, one token of .7 and the rest alike). Every token is asked for the next; in training
those of the first 24 places alone, in the test all of them, in three parts: places 1 to 24, 25 to
48, 49 to 72. 6,400 sequences, 384 held out, 128 for each part. No model can have fewer than 1.72
bits; a guess has 3.

*Arms.* Every earlier token, with no positions, learned ones, a table of steps back ("relative"),
rotary, and ALiBi's penalties. A window of 8, with learned positions and with a table.

*Model and training.* Two layers of width 32, 4 heads; AdamW, one cycle up to 1e-2, 500 batches of
16.

*Published.* Press et al. 2022 ("Train Short, Test Long", figure 1, as read): "current position
methods (sinusoidal, rotary, and T5) show degraded perplexity [...], but our method does not".
Kazemnejad et al. 2023 ("The Impact of Positional Encoding on Length Generalization in
Transformers", abstract): ALiBi, rotary and absolute positions "are not well suited for length
generalization in downstream tasks"; none at all (NoPE) "outperforms other explicit positional
encoding methods".

*Predicted before training.* At places 49 to 72 ALiBi has fewer bits than learned positions, whose
vectors there were never trained. A window with a table reads no distance that it was not trained
on, and has the same bits everywhere.
"""

import torch
from published import Published, beside

from graphattn.graphs import causal, sliding_window
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block

SHORT, LENGTH, KINDS, TRAINED, TESTED = 24, 72, 8, 6_400, 384
LIKELY = 0.7
GROUPS = ("1 to 24", "25 to 48", "49 to 72")
EARLIER, WINDOW = "every earlier token", "window 8"


def data() -> Data:
    """A chain of order two; sample i of the test asks the places of part ``i % 3``."""
    random = torch.Generator().manual_seed(31)
    count = TRAINED + TESTED
    table = torch.full((KINDS, KINDS, KINDS), (1 - LIKELY) / (KINDS - 1))
    likely = torch.randint(KINDS, (KINDS, KINDS, 1), generator=random)
    table.scatter_(-1, likely, LIKELY)
    tokens = torch.randint(KINDS, (count, LENGTH + 1), generator=random)
    for place in range(2, LENGTH + 1):
        shares = table[tokens[:, place - 2], tokens[:, place - 1]]
        tokens[:, place] = torch.multinomial(shares, 1, generator=random).squeeze(-1)
    held = torch.arange(count) >= TRAINED
    part = torch.zeros(count, dtype=torch.int64)
    part[held] = torch.arange(TESTED) % len(GROUPS)
    asked = torch.arange(LENGTH) // SHORT == part.unsqueeze(-1)
    asked[:, 0] = False  # one token says nothing of the next
    return Data(
        tokens[:, :LENGTH],
        torch.where(asked, tokens[:, 1:], NOT_ASKED),
        held,
        causal=True,
        groups={name: held & (part == number) for number, name in enumerate(GROUPS)},
    )


def comparison(name: str, graph: object, positions: tuple[str, ...], steps: int) -> Comparison:
    """One graph with several kinds of positions."""
    return Comparison(
        name,
        {name: graph},
        data(),
        readout="node",
        model=Model(layers=2, width=32, heads=4, hidden=64),
        training=Training(1e-2, batch=16),
        budgets=[Budget(None, steps)],
        positions=positions,
        controls=(),
        metric="bits",
    )


def summary(report: Report) -> list[Block]:
    """Published statements beside ours, at short and at long places."""
    press = "Press et al. 2022, figure 1"
    nope = "Kazemnejad et al. 2023, abstract"
    statements = {
        "alibi": (press, "no worse at longer inputs", "-"),
        "rotary": (press, "worse at longer inputs", "-"),
        "learned": (nope, "not well suited for length generalization", "-"),
        "none": (
            nope,
            "outperforms other explicit positional encoding methods",
            "better than rotary and learned at long places, not than ALiBi; the order is hardly "
            "learned at short ones: two layers, 500 batches",
        ),
    }
    lines = []
    for positions in report.plan["comparisons"][EARLIER]["positions"]:
        if positions in statements:
            source, number, why = statements[positions]
            where = {"arm": EARLIER, "comparison": EARLIER, "positions": positions}
            ends = (GROUPS[0], GROUPS[-1])
            lines.append(Published(positions, source, number, where, why, ends))
    told = f"Bits at places {GROUPS[0]} / at places {GROUPS[-1]}, lower is better; 1.72 at best."
    heading, table = beside(report, lines)
    return [heading, told, table]


def study(quick: bool = False) -> Study:
    """Two graphs, five kinds of positions; quick: one and two, 30 batches."""
    if quick:
        every = [comparison(EARLIER, causal(LENGTH), ("learned", "alibi"), 30)]
        return Study("length", every, seeds=2, summary=summary)
    kinds = ("none", "learned", "relative", "rotary", "alibi")
    every = [
        comparison(EARLIER, causal(LENGTH), kinds, 500),
        comparison(WINDOW, sliding_window(LENGTH, 8, causal=True), ("learned", "relative"), 500),
    ]
    claims = [
        Claim(
            EARLIER,
            EARLIER,
            comparison=EARLIER,
            positions="alibi",
            worse_positions="learned",
            group=GROUPS[-1],
            because="vectors of these places were never trained",
        )
    ]
    return Study("length", every, claims, seeds=6, summary=summary)
