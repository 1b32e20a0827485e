"""What goes into a paper: tables, pages and figures of a study; a pilot before it, and a tracker
beside it.
"""

import csv
import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
import torch
from matplotlib.text import Text
from test_report import HOSTILE, Elements
from tiny_study import HELD, SAMPLES, N, tiny_comparison, tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.statistics.intervals import effect_size
from graphattn.study import figure as picture
from graphattn.study import pilot, records, report
from graphattn.study.judge import Pairs
from graphattn.study.page import as_html
from graphattn.study.run import execute

WINDOW = ga.graphs.sliding_window(N, 3, causal=False)
DRAW = picture.draw  # before a fixture leaves figures out


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A study with names that LaTeX and HTML must not read, of 3 seeds."""
    arms = {
        HOSTILE[0]: WINDOW,
        r"50% & $x_1$ #{\dots}^2~": ga.graphs.circulant(N, (2,)).with_self_loops(),
    }
    claims = [study.Claim(*arms, because=HOSTILE[1])]
    given = {
        "seeds": 3,
        "budgets": study.Budget(None, 2),
        "controls": ("full",),
        "name": HOSTILE[3],
    }
    return tiny_run(tmp_path_factory.mktemp("paper") / "named", arms, claims=claims, **given)


def test_comma_separated_values_are_the_numbers_of_the_trials(named):
    with (named.folder / "report.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 9
    for line in lines:
        record = named.records.of_key[line["key"]]
        assert (float(line["accuracy"]), int(line["seed"])) == (record["accuracy"], record["seed"])
        assert (line["comparison"], line["examples"]) == (HOSTILE[3], "")


def test_the_table_of_arms_has_differences_from_all_pairs(named):
    for line, row in zip(named.arms.to_dict("records"), named.rows, strict=True):
        if line["kind"] == "full":
            assert pd.isna(line["hedges_g"])
            assert pd.isna(line["better_than_all_pairs"])
            assert line["mean_resistance"] == pytest.approx(2 / N)
            continue
        scores = list(row.scores.values()), list(named.row("full").scores.values())
        pairs = Pairs.of([a - b for a, b in zip(*scores, strict=True)], scores)
        assert line["better_than_all_pairs"] == pytest.approx(pairs.difference.value)
        effect = effect_size(pairs.typical)
        assert pd.isna(line["hedges_g"]) if effect is None else line["hedges_g"] == effect.value


@pytest.mark.slow
def test_a_table_of_latex_has_as_many_cells_in_every_line_and_names_are_text(named, tmp_path):
    text = (named.folder / "report.tex").read_text("utf-8")
    for columns, body in re.findall(
        r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", text, re.DOTALL
    ):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(columns)}
    assert r"50\% \& \$x\_1\$ \#\{\textbackslash dots\}\textasciicircum 2\textasciitilde " in text
    lines = text.splitlines()
    begun = [after for line, after in pairwise(lines) if line.endswith(r"\\")]
    assert not any(line.startswith(("[", "*")) for line in begun)  # an option of the line's end
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    if shutil.which("pdflatex"):
        (tmp_path / "a.tex").write_text(
            rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{text}\end{{document}}",
            encoding="utf-8",
        )
        words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
        made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-2000:]


def test_a_page_of_html_needs_nothing_beside_it_and_names_are_text(named):
    text = (named.folder / "report.html").read_text("utf-8")
    page = Elements(text)
    assert not {"script", "a", "link", "javascript:alert(1)"} & page.found
    links = [
        value
        for value in page.found
        if isinstance(value, str) and value.startswith(("data:", "http", "file"))
    ]
    assert [link[:26] for link in links] == ["data:image/svg+xml;base64,"]
    assert all(name in page.text for name in HOSTILE[:2])
    assert f"<title>{HOSTILE[3].replace('<', '&lt;')}</title>" in text
    assert "<img" not in as_html(str(named), "", named.folder / "none.svg")


@pytest.mark.slow
@pytest.mark.parametrize("curves", [True, False])
def test_a_figure_as_wide_as_a_column_stays_inside(named, tiny, curves, pictures):
    figure = DRAW(tiny if curves else named, 3.25)
    figure.draw_without_rendering()
    shown = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
    assert figure.get_size_inches()[0] == 3.25
    assert len(shown) > 8
    drawn = figure.get_tightbbox()
    assert -0.01 < drawn.x0 < drawn.x1 < 3.26
    assert DRAW(tiny if curves else named).get_size_inches()[0] == 6.9


def test_a_tracker_is_given_every_record_and_its_errors_are_warnings(tmp_path):
    given = {"seeds": 2, "budgets": study.Budget(None, 1), "controls": ("full",)}
    seen = []

    def track(record):
        seen.append(record)
        if record["arm"] == "full":
            raise ValueError("offline")

    with pytest.warns(UserWarning, match="on_trial: ValueError: offline; the study goes on"):
        found = tiny_run(tmp_path, on_trial=track, **given)
    assert seen == list(found.records.of_key.values())
    assert {(one["arm"], one["seed"]) for one in seen} == {
        (arm, seed) for arm in ("window", "full") for seed in (0, 1)
    }
    tiny_run(tmp_path, on_trial=track, **given)  # nothing is left to run
    assert len(seen) == 4


def piloted(folder, data=None, arms=None, **changes):
    given = {"budgets": study.Budget(None, 2), "controls": ("full",), "pilot": True, **changes}
    return tiny_run(folder, arms, data, **given)


@pytest.mark.slow
def test_a_pilot_finds_the_budget_at_which_arms_fit_or_says_that_none_does(tmp_path, capsys):
    """The third token is asked, at its own node."""
    others = ga.from_rule(lambda t, s: (t != s) & (s != 3), N)
    given = {
        "arms": {"self": ga.graphs.self_loops(N), "others": others},
        "readout": "token",
        "token": 3,
        "training": study.Training(batch=16, rate=3e-3),
        "model": study.Model(layers=1, width=16, heads=2, hidden=16),
    }
    found = piloted(tmp_path / "some", budgets=study.Budget(None, 20), **given)
    fits = {row[1]: row[3] for row in pilot.budgets(found)}
    assert fits == {"self": "20 batches", "others": "40 batches"}
    lines = capsys.readouterr().err.splitlines()
    runs = 2 * 20
    assert lines[0].startswith("pilot: ")
    assert lines[0].endswith(f"up to {14 * 2 * runs:,} more")
    assert f"pilot, arms that did not fit, others: 2 trials of {2 * runs} batches together" in lines
    assert [row.steps for row in found.rows if row.arm == "others"] == [20, 40]
    assert [row.steps for row in found.rows if row.arm != "others"] == [20, 20]
    assert "| others | none | 40 batches | solved |" in str(found)
    found = piloted(tmp_path / "none", budgets=study.Budget(None, 1), **given)
    fits = {row[1]: row[3] for row in pilot.budgets(found)}
    assert fits == dict.fromkeys(("self", "others"), "none up to 8 batches")
    assert any("others, self fit at no budget up to 8 batches" in text for text in found.cautions)


@pytest.mark.slow
def test_a_pilot_has_seeds_that_its_study_never_sees(tmp_path):
    claims = [study.Claim("window", "full")]
    with pytest.warns(UserWarning, match="its loss in training"):
        first = piloted(tmp_path, claims=claims)
    assert first.folder == tmp_path / "pilot"
    assert {one["seed"] for one in first.records.of_key.values()} == {1 << 16, (1 << 16) + 1}
    assert "## Claims" not in str(first)
    assert "begin{tabular}" in first.latex()
    assert "verdict" not in first.latex()
    found = tiny_run(tmp_path, claims=claims, budgets=study.Budget(None, 2), controls=("full",))
    assert {one["seed"] for one in found.records.of_key.values()} == {0, 1}
    assert found.late == []
    assert "a pilot of 2 other seeds, 20" in str(found)
    assert not found.is_pilot


def scored(found, folder, scores, losses):
    """The pilot with other scores, by arm and seed, and other losses."""
    shutil.copytree(found.folder, folder)
    kept = records.Records(folder)
    for one in list(kept.of_key.values()):
        kept.append(
            {**one, "accuracy": scores[one["arm"]][one["seed"] % 2], "loss": losses[one["arm"]]}
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are in its cautions
        return report(folder)


@pytest.mark.slow
def test_a_pilot_warns_of_chance_by_its_reasons_of_perfect_scores_and_counts_seeds(tmp_path):
    each = {
        "budgets": study.Budget(None, 2),
        "readout": "token",
        "claims": [study.Claim("window", "full")],
    }
    with pytest.warns(UserWarning, match="may need"):
        found = piloted(
            tmp_path / "a",
            arms={"window": WINDOW, "star": ga.graphs.global_tokens(N, (0,))},
            **each,
        )
    low, guess = (0.3, 0.3), found.plan["comparisons"]["study"]["guess_nats"]
    shares = tiny_data().targets.bincount() / SAMPLES
    assert guess == pytest.approx(float(-(shares * shares.log()).sum()))
    losses = {"window": 0.1, "star": 0.1, "full": guess}
    said = scored(found, tmp_path / "b", {"window": low, "star": low, "full": low}, losses).cautions
    by_arm = {
        arm: next(text for text in said if f", {arm}, positions none: at chance" in text)
        for arm in losses
    }
    assert "the budget is too small to leave chance" in by_arm["full"]
    assert "it learns by heart" in by_arm["star"]
    assert "its readout reaches 42.9% of what it may need" in by_arm["window"]
    best = scored(
        found,
        tmp_path / "c",
        {"window": (0.7, 0.8), "star": (1.0, 0.99), "full": (1.0, 1.0)},
        losses,
    )
    assert any(
        "star, full have 0.99 or more and can hardly differ" in text for text in best.cautions
    )
    assert not any("at chance after" in text for text in best.cautions)
    deviation = 0.1 / 2**0.5  # of two differences, -.3 and -.2
    page = str(best)
    assert f"| study | 0.05 | {deviation:.3f} | {study.seeds_needed(0.05, deviation)} |" in page
    upper = float(re.search(r"\| study \| 0.05 \| \S+ \| \d+ \| (\S+) \|", page)[1])
    # the 60 % point of a normal: chi2 of 1 degree
    assert upper == pytest.approx(deviation / 0.2533, rel=0.01)
    alike = scored(found, tmp_path / "d", dict.fromkeys(losses, (0.9, 0.9)), losses)
    assert "nothing varies between the two seeds" in str(alike)


def test_bits_no_better_than_the_shares_of_classes_are_chance(tmp_path):
    with pytest.warns(UserWarning, match="no arm takes fewer bits than a guess"):
        found = tiny_run(
            tmp_path, metric="bits", controls=("full",), budgets=study.Budget(None, 1), seeds=1
        )
    row = found.row("window")
    assert row.at_chance
    guess = found.plan["comparisons"]["study"]["guess_nats"] / torch.tensor(2.0).log()
    bits = float(guess) - 0.01
    runs = [run._replace(record={**run.record, "bits": bits}) for run in row.runs]
    assert not replace(row, runs=runs).at_chance
    assert row.answers == HELD


@pytest.mark.slow
def test_comparisons_of_two_metrics_have_a_scale_each_and_a_mark_says_what_did_not_fit(
    tmp_path, pictures
):
    budget = study.Budget(None, 2)
    options = {"controls": ("full",), "budgets": budget}
    window = {"window": WINDOW}
    numbers = torch.randn(SAMPLES, 1, generator=torch.Generator().manual_seed(1))
    comparisons = [
        tiny_comparison(window, **options),
        study.Comparison("numbers", window, tiny_data(targets=numbers), **options),
        study.Comparison("more numbers", window, tiny_data(targets=numbers), **options),
    ]
    found = execute(study.Study("three", comparisons), seeds=2, out=tmp_path, processes=0)
    figure = DRAW(found)
    classes, values, more = figure.axes
    assert classes.get_xlim() != values.get_xlim()
    assert values.get_xlim() == more.get_xlim()
    assert [tick.get_text() for tick in classes.get_yticklabels()] == [
        "window \N{DAGGER}",
        "full \N{DAGGER}",
    ]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "did not fit" in legend
