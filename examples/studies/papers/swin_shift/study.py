"""Swin's shift: what lies across the border of a window is a guess until windows are shifted.

*Question.* Two layers of windows are blocks that never mix; shifted windows in the second layer
join them. What is the shift worth, and is it what the receptive field says?

*Data.* Images of 8 x 8 tokens of 8 kinds; every place in columns 2 to 7 is asked for the token two
columns to its left. 6,400 images, 256 held out. Chance is about 1/8.

*Arms.* Windows of 4 x 4 in both layers (W-MSA, without shift); windows, then windows shifted by 2
(W-MSA, SW-MSA; Liu et al. 2021, "Swin Transformer"); all pairs.

*Model and training.* Two layers of width 32, 4 heads, relative positions that start with deviation
1; Adam 3e-3, tables .1, 800 batches of 16 at most, until the loss is below .05.

*Published.* Liu et al. 2021, table 4, Swin-T: ImageNet top-1 without shifting 80.2, with 81.3; COCO
box AP 47.7 and 50.5; ADE20K mIoU 43.3 and 46.1.

*Predicted before training.* A law. Without shift columns 4 and 5 of columns 2 to 7 lack what they
are asked: 2/3 and a guess of 1/8 of the rest, .708, is the ceiling. With it everything is reached,
and learned to .95.
"""

import torch
from published import Published, beside

from graphattn.convert import from_rule
from graphattn.graphs import full, window_partition
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block

SIDE, WINDOW, KINDS, TRAINED, TESTED, BACK = 8, 4, 8, 6_400, 256, 2
PLAIN, SHIFTED = "windows, windows", "windows, shifted windows"


def data() -> Data:
    """Images row by row; a target is the token two columns to the left."""
    random = torch.Generator().manual_seed(23)
    tokens = torch.randint(KINDS, (TRAINED + TESTED, SIDE, SIDE), generator=random)
    targets = torch.full_like(tokens, NOT_ASKED)
    targets[:, :, BACK:] = tokens[:, :, :-BACK]
    needs = from_rule(lambda t, s: (t - s == BACK) & (t % SIDE >= BACK), SIDE * SIDE)
    held = torch.arange(len(tokens)) >= TRAINED
    return Data(tokens.flatten(1), targets.flatten(1), held, needs=needs)


def summary(report: Report) -> list[Block]:
    """Published numbers beside ours."""
    why = (
        "another task: the share of answers that need the shift is ours to choose, theirs is small"
    )
    table = "Liu et al. 2021, table 4, ImageNet top-1"
    lines = [
        Published("without shift", table, "80.2", {"arm": PLAIN}, why),
        Published("shifted windows", table, "81.3", {"arm": SHIFTED}, why),
    ]
    return beside(report, lines)


def study(quick: bool = False) -> Study:
    """One comparison; quick: 40 batches."""
    steps = 800
    seeds = 5
    if quick:
        steps = 40
        seeds = 2
    plain = window_partition((SIDE, SIDE), WINDOW)
    shifted = window_partition((SIDE, SIDE), WINDOW, shift=WINDOW // 2)
    comparison = Comparison(
        "swin_shift",
        {PLAIN: plain, SHIFTED: [plain, shifted], "all pairs": full(SIDE * SIDE)},
        data(),
        readout="node",
        model=Model(layers=2, width=32, heads=4, hidden=64, table_std=1.0),
        training=Training(3e-3, 0.1, "constant", 20, 16, weight_decay=0.0, stop=0.05),
        budgets=[Budget(None, steps)],
        positions=("relative",),
        controls=("shuffled",),
    )
    claims = [Claim(SHIFTED, PLAIN, margin=0.2, because="a third of answers lies across a border")]
    return Study("swin_shift", [comparison], claims, seeds=seeds, summary=summary)
