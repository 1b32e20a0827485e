r"""Recall: a window of w in L layers remembers L (w - 1) tokens at most.

*Question.* A causal window of :math:`w` read through :math:`L` layers depends on the last
:math:`L (w - 1)` tokens. The law is a zero Jacobian: no training, width or luck brings a token from
farther back. Is all that is reached learned?

*Data.* Sequences of 32 tokens, uniform over 8; every token is asked for the one :math:`d` steps
before it. 12,800 sequences, as many as 800 batches of 16 hold, and 256 held out, the same for all
seeds. Chance is 1/8.

*Arms.* Windows, one comparison for each depth and distance: :math:`d` at the boundary
:math:`L (w - 1)`, one beyond it, and inside. Controls for :math:`L = 2, d = 4`: self, all earlier
tokens (full), as many earlier tokens at random (in-degrees of a window), shuffled labels.

*Model and training.* Width 32, 8 heads, feed-forward 64, a table of relative positions for each
layer and head that starts with deviation 1 (with .02 training stalls); Adam 3e-3, tables .3,
constant after 20 steps (a decaying rate fails), clip 1; until the loss is below .05, at most 800
steps.

*Predicted before training.* Beyond the boundary accuracy stays within 4 standard deviations of
chance, whatever is trained. Inside, for L up to 3 and w up to 5, it is .95 or more. For L = 4 the
boundary is reached by a path that starts with weight about :math:`w^{-L}`: reachable, and not
predicted to be learned.
"""

from collections.abc import Iterator
from typing import Any

import torch

from graphattn.convert import from_rule
from graphattn.graphs import sliding_window
from graphattn.study import Budget, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block, Table
from graphattn.study.table import SIGMAS, ArmRow

TOKENS, LENGTH, TRAINED, TESTED, STEPS, BATCH = 8, 32, 12_800, 256, 800, 16
LEARNED = 0.95
WIDTHS, DEPTHS = (2, 3, 4, 5), (1, 2, 3)


def cells(quick: bool = False) -> list[tuple[int, int, int]]:
    """(L, w, d): at the boundary, one beyond it, inside (about half way), and the two of L = 4 at w
    = 3.
    """
    found = []
    for L in DEPTHS[:2] if quick else DEPTHS:
        for w in (2, 4) if quick else WIDTHS:
            edge = L * (w - 1)
            found += [(L, w, d) for d in sorted({max(1, edge // 2), edge, edge + 1})]
    return found if quick else [*found, (4, 3, 8), (4, 3, 9)]


def recalled(d: int) -> Data:
    """Sequences, and the token ``d`` steps before each."""
    random = torch.Generator().manual_seed(7)
    tokens = torch.randint(TOKENS, (TRAINED + TESTED, LENGTH), generator=random)
    targets = tokens.roll(d, 1)
    targets[:, :d] = NOT_ASKED
    needs = from_rule(lambda t, s: t - s == d, LENGTH)
    return Data(tokens, targets, torch.arange(len(tokens)) >= TRAINED, needs=needs, causal=True)


def comparisons(quick: bool) -> Iterator[Comparison]:
    """One for each depth and distance: its arms are the windows of those cells."""
    groups: dict[tuple[int, int], list[int]] = {}
    for L, w, d in cells(quick):
        groups.setdefault((L, d), []).append(w)
    for (L, d), widths in sorted(groups.items()):
        arms: dict[str, Any] = {
            f"window {w}": sliding_window(LENGTH, w, causal=True) for w in widths
        }
        yield Comparison(
            f"L={L}, d={d}",
            arms,
            recalled(d),
            readout="node",
            model=Model(layers=L, width=32, heads=8, hidden=64, table_std=1.0),
            training=Training(3e-3, 0.3, "constant", 20, BATCH, weight_decay=0.0, stop=0.05),
            budgets=[Budget(None, STEPS)],
            positions=("relative",),
            controls=("self", "full", "in-degrees", "shuffled") if (L, d) == (2, 4) else (),
        )


def study(quick: bool = False) -> Study:
    """All cells; quick: L of 1 and 2, windows of 2 and 4."""
    return Study(
        "recall",
        list(comparisons(quick)),
        seeds=2 if quick else 5,
        summary=summary,
        figure=figure,
    )


def state_of(row: ArmRow) -> str:
    """What became of a cell."""
    found = row.interval
    if found is None:
        return "not measured"
    chance = 1 / TOKENS
    if row.prediction["reached"] == 0:
        sd = (chance * (1 - chance) / row.answers) ** 0.5
        inside = all(abs(score - chance) <= SIGMAS * sd for score in row.scores.values())
        return "unreachable, at chance" if inside else "unreachable, NOT at chance"
    if min(row.scores.values()) >= LEARNED:
        return "reachable, learned"
    learned = sum(score >= LEARNED for score in row.scores.values())
    return f"reachable, learned by {learned} of {len(row.scores)} seeds"


def windows_of(report: Report) -> list[tuple[int, int, int, ArmRow]]:
    """(L, w, d, row) of every cell that is a window."""
    rows = [row for row in report.rows if row.prediction["kind"] == "arm"]
    return [
        (*(int(x[2:]) for x in row.comparison.split(", ")), int(row.arm.split()[1]), row)
        for row in rows
    ]  # type: ignore[misc]


def summary(report: Report) -> list[Block]:
    """The law and what was learned, in a few lines and a table."""
    rows, counts = [], dict.fromkeys(("beyond", "at chance", "inside", "learned"), 0)
    for L, d, w, row in windows_of(report):
        state = state_of(row)
        counts["beyond"] += row.prediction["reached"] == 0
        counts["at chance"] += state == "unreachable, at chance"
        counts["inside"] += row.prediction["reached"] > 0 and L <= 3
        counts["learned"] += state == "reachable, learned" and L <= 3
        rows.append(
            [
                f"{L}",
                f"{w}",
                f"{d}",
                f"{L * (w - 1)}",
                "-" if row.interval is None else str(row.interval),
                state,
            ]
        )
    told = (
        f"Beyond L (w - 1): {counts['at chance']} of {counts['beyond']} at chance, all seeds "
        f"within {SIGMAS:g} sd. "
        f"Up to it, L <= 3: {counts['learned']} of {counts['inside']} cells learned to {LEARNED} "
        "or more by all seeds."
    )
    least = min((len(row.scores) for *_, row in windows_of(report)), default=0)
    if least < report.plan["seeds"]:
        told += f" Not at its end: every cell has {least} or more of {report.plan['seeds']} seeds."
    return [
        "## In short",
        told,
        Table(["L", "w", "d", "L (w - 1)", "accuracy [95 %]", "state"], rows),
    ]


def figure(report: Report) -> Any:
    """Accuracy against distance over reach: a step at 1."""
    from graphattn.study.figure import axes
    from graphattn.viz.style import FAINT, GROUND, HIGHLIGHTS, INK, MARKERS, TEXT, empty_figure

    drawn = empty_figure(None, 6.9, 3.0)
    ax = axes(drawn, (1, 1, 1), "every seed of every cell")
    ax.axvspan(1.045, 2.15, color=FAINT, alpha=0.6, linewidth=0)
    ax.axhline(1 / TOKENS, color=GROUND, linestyle=":", linewidth=1)
    random = torch.Generator().manual_seed(0)
    seen = set()
    for L, d, w, row in windows_of(report):
        for score in row.scores.values():
            x = d / (L * (w - 1)) + 0.012 * float(torch.randn((), generator=random))
            style = {
                "color": HIGHLIGHTS[L - 1],
                "marker": MARKERS[L - 1],
                "markersize": 4.5,
                "alpha": 0.65,
            }
            label = None if L in seen else f"L = {L}"
            seen.add(L)
            ax.plot([x], [score], linestyle="none", markeredgewidth=0, label=label, **style)
    ax.set_xlabel("distance asked for, over what the graph reaches: d / (L (w - 1))", fontsize=TEXT)
    ax.set_ylabel("accuracy", fontsize=TEXT)
    ax.set_ylim(0, 1.05)
    ax.set_xlim(0.3, 2.15)
    ax.text(
        2.13,
        0.55,
        "no path:\npredicted at chance,\nwhatever is trained",
        ha="right",
        fontsize=TEXT - 1,
        color=INK,
    )
    ax.text(0.32, 1 / TOKENS + 0.02, "chance", fontsize=TEXT - 1, color=INK)
    ax.legend(frameon=False, fontsize=TEXT - 1, loc="center left")
    return drawn
