"""Multi-query associative recall: by the window that is read, and by the width of the model.

*Question.* Full attention recalls at any width that it is given. Is that the graph, or the width?

*Data.* Multi-query associative recall (Arora et al. 2023, "Zoology: Measuring and Improving Recall
in Efficient Language Models"): 8 pairs of a key and a value, of 16 keys and 16 values, then the 8
keys in another order, each asked for its value; 24 tokens, 16,000 sequences, 256 held out. Chance
is about 1/16, and 1/8 by a look at the values alone.

*Arms.* Causal windows of 6 and 12 tokens, two layers (reach 10 and 22); every earlier token.

*Model and training.* Widths 8, 16 and 32, a comparison each: two layers, 2 heads, relative
positions that start with deviation 1; Adam 3e-3, tables .1, 1,500 batches of 32 at most, until the
loss is below .05.

*Published.* "To solve AR on longer and longer sequences, gated-convolutions needed more and more
dimensionality (and, thus, FLOPs) while attention did not" (the authors' text of 2023-12-11,
hazyresearch.stanford.edu/blog/2023-12-11-zoology1-analysis).

*Predicted before training.* All earlier tokens solve it at every width; a window of 6 at none, as
what is out of reach is guessed; a window of 12, which reaches nearly all, at width 32, not at 8.
(After runs of seeds 0 to 4: claims are counted on seeds 10 to 19, of which none had been trained
when they were registered.)
"""

import torch
from published import Published, beside

from graphattn.convert import from_edge_index
from graphattn.graphs import causal, sliding_window
from graphattn.laws import reached
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block, Table

PAIRS, WORDS, TRAINED, TESTED = 8, 16, 16_000, 256
LENGTH = 3 * PAIRS
WIDTHS = (8, 16, 32)
EARLIER = "every earlier token"


def data() -> Data:
    """Keys are tokens 0 to 15, values 16 to 31; a target is the number of the value."""
    random = torch.Generator().manual_seed(5)
    count = TRAINED + TESTED
    keys = torch.rand(count, WORDS, generator=random).argsort(-1)[:, :PAIRS]
    order = torch.rand(count, PAIRS, generator=random).argsort(-1)
    values = torch.randint(WORDS, (count, PAIRS), generator=random)
    pairs = torch.stack((keys, WORDS + values), -1).flatten(1)
    targets = torch.full((count, LENGTH), NOT_ASKED)
    targets[:, 2 * PAIRS :] = values.gather(1, order)
    inputs = torch.cat((pairs, keys.gather(1, order)), 1)
    return Data(inputs, targets, torch.arange(count) >= TRAINED, causal=True)


def comparison(width: int, samples: Data, steps: int) -> Comparison:
    """Windows and every earlier token at one width."""
    return Comparison(
        f"width {width}",
        {
            "window 6": sliding_window(LENGTH, 6, causal=True),
            "window 12": sliding_window(LENGTH, 12, causal=True),
            EARLIER: causal(LENGTH),
        },
        samples,
        readout="node",
        model=Model(layers=2, width=width, heads=2, hidden=2 * width, table_std=1.0),
        training=Training(3e-3, 0.1, "constant", 20, 32, weight_decay=0.0, stop=0.05),
        budgets=[Budget(None, steps)],
        positions=("relative",),
        controls=(),
    )


def ceiling(window: int) -> float:
    """Accuracy of two layers that answer all of what is in reach, and guess the rest.

    What a sample needs is the value of the pair that it is asked for, another place in each.
    """
    samples = data()
    held = samples.inputs[-TESTED:]
    keys = held[:, : 2 * PAIRS : 2]
    pair = (held[:, 2 * PAIRS :, None] == keys[:, None]).int().argmax(-1)
    asked = torch.arange(2 * PAIRS, LENGTH)
    needs = [
        from_edge_index(torch.stack((2 * of_sample + 1, asked)), num_nodes=LENGTH)
        for of_sample in pair
    ]
    is_asked = samples.asked[-TESTED:].float()
    share = reached([sliding_window(LENGTH, window, causal=True)] * 2, needs, is_asked)
    return share + (1 - share) / WORDS


def summary(report: Report) -> list[Block]:
    """Published statements beside ours, and ceilings by sample beside what windows reached."""
    text = "the authors' text, 2023-12-11"
    lines = []
    rows = []
    for name in report.plan["comparisons"]:
        where = {"arm": EARLIER, "comparison": name}
        lines.append(Published(f"attention, {name}", text, "needs no more width", where))
        for window in (6, 12):
            measured = report.row(f"window {window}", name).interval
            rows.append([f"window {window}", name, f"{ceiling(window):.3f}", str(measured)])
    table = Table(["arm", "comparison", "ceiling by sample", "accuracy [95 %]"], rows)
    why = (
        "A window answers what two of them reach, in each sample another share, and guesses the "
        "rest (`ga.laws.reached` of a graph of needs for each sample; computed after training):"
    )
    return [*beside(report, lines), "## Ceilings by sample", why, table]


def study(quick: bool = False) -> Study:
    """Three widths; quick: one, and 50 batches."""
    samples = data()
    if quick:
        return Study("mqar", [comparison(8, samples, 50)], seeds=2, summary=summary)
    every = [comparison(width, samples, 1_500) for width in WIDTHS]
    claims = [
        Claim(
            EARLIER,
            "window 6",
            comparison="width 8",
            worse_comparison="width 32",
            because="no width brings a pair into reach",
            of="solving",
        ),
        Claim(
            "window 12",
            "window 12",
            comparison="width 32",
            worse_comparison="width 8",
            because="two layers must carry more through fewer numbers",
            of="solving",
        ),
    ]
    return Study("mqar", every, claims, seeds=range(10, 20), summary=summary, looked_at=range(5))
