"""What goes into a paper: tables, pages and figures of a study."""

import csv
from dataclasses import replace

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
