"""Induction heads: one layer cannot continue a repetition, two layers can, and the graphs say how.

*Question.* "... A B ... A" is continued by B if one layer tells every token its predecessor, and a
second finds the token whose predecessor is A. Do two layers learn it and one not? Which of them
needs all earlier tokens?

*Data.* 32 tokens: a stretch of 8 to 15 distinct tokens of 16, again and again; from the second time
on each token is asked for its successor. 16,000 sequences, 256 held out. The length of the stretch
is drawn, so that no fixed distance answers.

*Arms.* One layer and two of all earlier tokens; of two layers also those that read only the token
before (a window of 2), first or last.

*Model and training.* Width 32, 4 heads, relative positions that start with deviation 1; Adam 3e-3,
tables .1, 1,200 batches of 32 at most, until the loss is below .05.

*Published.* Olsson et al. 2022, "In-context Learning and Induction Heads": induction heads need two
layers, as they compose with a head that attends to the token before; they appear in models of two
layers and more, abruptly, and one-layer models show no such change (their argument 1).

*Predicted before training.* Two layers solve it, also with a window of 2 before all earlier tokens,
which is the circuit of the publication. One layer does not. A window of 2 after all earlier
tokens does not: the first layer cannot know what the second would need. (After runs of seeds 0
to 4: claims are counted on seeds 10 to 19, of which none had been trained when they were
registered.)
"""

import torch
from published import Published, beside

from graphattn.graphs import causal, sliding_window
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block

LENGTH, WORDS, TRAINED, TESTED = 32, 16, 16_000, 256
SHORTEST, LONGEST = 8, 15
EARLIER, CIRCUIT, LATE = "every earlier token", "the token before, then every", "every, then one"


def data() -> Data:
    """Stretches of distinct tokens, repeated; targets are successors, from the second time on."""
    random = torch.Generator().manual_seed(17)
    count = TRAINED + TESTED
    words = torch.rand(count, WORDS, generator=random).argsort(-1)
    period = torch.randint(SHORTEST, LONGEST + 1, (count, 1), generator=random)
    place = torch.arange(LENGTH + 1)
    tokens = words.gather(1, place % period)
    targets = torch.where(place[:LENGTH] >= period, tokens[:, 1:], NOT_ASKED)
    return Data(tokens[:, :LENGTH], targets, torch.arange(count) >= TRAINED, causal=True)


def comparison(layers: int, samples: Data, steps: int) -> Comparison:
    """The arms of models of so many layers."""
    arms: dict[str, object] = {EARLIER: causal(LENGTH)}
    if layers == 2:
        one = sliding_window(LENGTH, 2, causal=True)
        arms |= {CIRCUIT: [one, causal(LENGTH)], LATE: [causal(LENGTH), one]}
    return Comparison(
        f"{layers} layer{'s' * (layers > 1)}",
        arms,
        samples,
        readout="node",
        model=Model(layers=layers, width=32, heads=4, hidden=64, table_std=1.0),
        training=Training(3e-3, 0.1, "constant", 20, 32, weight_decay=0.0, stop=0.05),
        budgets=[Budget(None, steps)],
        positions=("relative",),
        controls=(),
    )


def summary(report: Report) -> list[Block]:
    """Published statements beside ours."""
    source = "Olsson et al. 2022, argument 1"
    why = (
        "these data have another answer, the token seen longest ago, which one layer can rank by "
        "steps back; where it solves them, it does so without an induction head"
    )
    lines = [
        Published("one layer", source, "no induction heads", {"comparison": "1 layer"}, why),
        Published("two layers", source, "induction heads form", {"comparison": "2 layers"}),
    ]
    lines = [
        Published(x.what, x.source, x.number, {"arm": EARLIER, **x.ours}, x.why)
        for x in lines
        if x.ours["comparison"] in report.plan["comparisons"]
    ]
    return beside(report, lines)


def study(quick: bool = False) -> Study:
    """One layer and two; quick: one, 50 batches."""
    samples = data()
    if quick:
        return Study("induction", [comparison(1, samples, 50)], seeds=2, summary=summary)
    every = [comparison(1, samples, 1_200), comparison(2, samples, 1_200)]
    claims = [
        Claim(
            EARLIER,
            EARLIER,
            comparison="2 layers",
            worse_comparison="1 layer",
            because="no layer before tells a token its predecessor",
            of="solving",
        ),
        Claim(
            CIRCUIT,
            LATE,
            comparison="2 layers",
            because="a query must know what it looks for",
            of="solving",
        ),
    ]
    fresh = range(10, 20)
    return Study("induction", every, claims, seeds=fresh, summary=summary, looked_at=range(5))
