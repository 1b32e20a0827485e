"""The section on claims: their verdicts, and notes on the words and tests of those."""

from ...statistics.collapse import RULE, unseen
from ...statistics.intervals import EXACT
from ..judging.claims import FITTING, SCORE, SOLVING, STEPS, VERDICTS
from ..page import Block, Table
from .cells import EFFECT, effect_text, formatted, interval_text
from .markdown import verbatim
from .results import Results

_OF_SCORES = (
    f"Claims on scores: p is of sign flips of the differences less the margin, exact up to {EXACT} "
    "seeds; of equality, of both ends of the margin."
)
_OF_SHARES = (
    "Claims of fitting and solving: p is of Fisher's exact test of shares of runs; the interval is "
    "Newcombe's."
)
_OF_TYPICAL = (
    "A claim on scores is then one on typical runs, pairs of runs that did not collapse, if two "
    "thirds of the runs of each arm did not; beside it stand the shares of runs that solved "
    "(Fisher's exact test) and the difference of interquartile means of all runs (a bootstrap "
    "within each arm, from 10 runs on; Agarwal et al. 2021)."
)
_OF_STEPS = (
    "Claims of steps: the batches until training has the level, in the mean of a stretch of its "
    "curve or on its training examples at the end. A level that is a score is one of accuracy, of "
    "numbers R2, whatever the metric. A curve has 20 points at most, so that steps are known to "
    "within as many batches as the verdict names. Runs that never have the level count, as slower "
    "than all that do and as alike. p: sign flips of the differences, by seed, of ranks among all "
    "runs of both arms; the verdict is by this test alone. The ratio, worse to better, is Hodges and "
    "Lehmann's, where half of the runs of each arm have the level; its interval has all ratios that "
    "the test does not reject, and allows for where in its stretch a run had the level, so that it "
    "may hold 1 where the test decides."
)


def verdict_lines(results: Results) -> list[str]:
    """Each claim with its difference and p, and what became of it."""
    lines = []
    for claim, verdict in zip(results.claims, results.verdicts, strict=True):
        line = verdict.claim
        if verdict.difference is not None:
            if claim.of == STEPS:
                line += f"; {claim.worse} takes {verdict.difference}"
            else:
                line += f", by {verdict.difference}"
            if verdict.p is not None:
                line += f", p {verdict.p:.3g}"
        lines.append(f"{line}: {', '.join((verdict.verdict, *verdict.remarks))}")
    return lines


def claim_blocks(results: Results) -> list[Block]:
    """Claims with their verdicts, and notes on them."""
    rows = []
    for claim, verdict in zip(results.claims, results.verdicts, strict=True):
        if verdict.difference is None:
            seeds = 0
        else:
            seeds = verdict.difference.seeds
        rows.append(
            [
                verbatim(claim),
                verbatim(claim.because) or "-",
                f"{seeds}",
                interval_text(verdict.difference),
                effect_text(verdict.effect),
                formatted(verdict.p, ".3g"),
                verbatim(", ".join((verdict.verdict, *verdict.remarks))),
            ]
        )
    head = ["claim", "because", "seeds", "difference [95 %]", "g_z [95 %]", "p", "verdict"]
    return [Table(head, rows), "\n".join(f"* {note}" for note in _notes_of_claims(results))]


def _notes_of_claims(results: Results) -> list[str]:
    """Notes on the words and numbers of verdicts that are on the page."""
    kinds = {claim.of for claim in results.claims}
    used = {verdict.verdict for verdict in results.verdicts}
    notes = [f"*{word}*: {meaning}." for word, meaning in VERDICTS.items() if word in used]
    notes.append("p is after Holm's correction for all claims made beforehand; intervals are not.")
    if SCORE in kinds:
        notes += [_OF_SCORES, f"*g_z*: {EFFECT}"]
    if kinds & {FITTING, SOLVING}:
        notes.append(_OF_SHARES)
    if STEPS in kinds:
        notes.append(_OF_STEPS)
    if results.late:
        notes.append("*Late*: both arms had been measured when it was claimed.")
    if SCORE in kinds:
        seeds = results.plan["seeds"]
        notes += [
            f"{RULE} {_OF_TYPICAL}",
            f"Where none of {seeds} runs collapsed, up to {unseen(seeds):.0%} may (95 %): no "
            "verdict is one on means. `graphattn study --error-rates` prints how often such "
            "verdicts err.",
        ]
    return notes
