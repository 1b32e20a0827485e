"""The report: predictions beside measurements, and laws that would be broken said aloud."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from tiny_study import SAMPLES, N, tiny_comparison, tiny_data, tiny_run
from typer.testing import CliRunner

import graphattn as ga
from graphattn import study
from graphattn.cli.app import app
from graphattn.errors import ControlError, OptionError
from graphattn.study import Report, records, report
from graphattn.study.judge import CLASSES
from graphattn.study.laws import with_draws
from graphattn.study.page import MOST_WORDS, Table, as_html, words_of
from graphattn.study.run import run_file
from graphattn.study.table import Run, pairs_of

ROOT = Path(__file__).parents[2]


def test_rows_are_means_of_the_draws_paired_by_seed(tiny):
    rewired, window = tiny.row("rewired window", examples=11), tiny.row("window", examples=11)
    draws = [
        [
            one["accuracy"]
            for one in tiny.records.of_key.values()
            if (one["arm"], one["examples"], one["seed"]) == key
        ]
        for key in (("rewired window", 11, 0), ("rewired window", 11, 1))
    ]
    assert [len(each) for each in draws] == [3, 3]
    assert rewired.scores == pytest.approx({seed: sum(each) / 3 for seed, each in enumerate(draws)})
    assert tiny.differences(window, rewired) == pytest.approx(
        [window.scores[s] - rewired.scores[s] for s in (0, 1)]
    )


def test_a_page_is_short_says_what_cannot_be_said_first_and_all_files_are_there(tiny):
    text = str(tiny)
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "What cannot be said",
        "Claims",
        "Scores",
        "The study",
        "Checks",
        "Made by",
    ]
    assert words_of(text) <= MOST_WORDS
    assert (
        "* 83 samples of 7 nodes at most, 41 of them held out; readout: mean\n* model: layers 2"
        in text
    )
    assert "; 11 examples, 3 batches; all examples, 3 batches\n" in text
    assert re.search(r"\n\| window > full \| - \| .* \| did not fit; window: did not fit", text)
    assert {f"report.{end}" for end in ("md", "html", "json", "csv")} <= {
        path.name for path in tiny.folder.iterdir()
    }
    numbers = json.loads((tiny.folder / "report.json").read_text("utf-8"))
    assert numbers["counts"] == {"planned": 38, "done": 38, "capped": 0, "failed": 0}
    assert len(numbers["rows"]) == 11


def test_tables_are_tidy(tiny):
    """A row for each trial; a row for each arm and budget; a row for each claim."""
    assert len(tiny.trials) == 38
    means = tiny.trials.groupby(["arm", "budget"])["accuracy"].mean()
    for row in tiny.rows:
        assert means[row.arm, row.budget] == pytest.approx(row.interval.value)
    assert tiny.arms["arm"].tolist() == [row.arm for row in tiny.rows]
    assert tiny.arms["edges"][0] == row_of(tiny, "window").prediction["edges"]
    (claim,) = tiny.claims.to_dict("records")
    assert (claim["claim"], claim["verdict"]) == ("window > full", "did not fit")
    assert claim["difference"] == tiny.verdicts[0].difference.value


def row_of(found, arm):
    return found.row(arm, examples=11)


@pytest.mark.slow
def test_many_arms_and_long_texts_are_cut_to_the_words_of_a_page(tiny):
    about = "\n\n".join(f"Paragraph {i} has some words in it, and more." * 9 for i in range(30))
    trials = [
        {**one, "arm": f"{one['arm']}", "steps": one["steps"] + i}
        for i in range(40)
        for one in tiny.plan["trials"]
    ]
    found = Report(tiny.folder, {**tiny.plan, "about": about, "trials": trials}, tiny.records)
    text = str(found)
    assert words_of(text) <= MOST_WORDS
    assert "rows more. All of it" in text
    assert "The rest of this text is in plan.json." in text


def test_seeds_that_were_looked_at_do_not_count_in_claims_and_copies_are_said(tmp_path):
    options = {"budgets": study.Budget(None, 1), "controls": ("full",), "seeds": range(3, 6)}
    inputs = tiny_data().inputs % 1  # all alike
    data = tiny_data(inputs=inputs)
    claims = [study.Claim("window", "full", because="x", law={"window": 2.0, "full": 1.0})]
    found = tiny_run(tmp_path, data=data, claims=claims, looked_at=(3,), **options)
    assert {one["seed"] for one in found.records.of_key.values()} == {3, 4, 5}
    assert found.verdicts[0].difference.seeds == 2
    text = str(found)
    assert "Anything by seed 3, looked at before the claims were made" in text
    assert "41 of 41 held-out samples are copies of training samples (1 of 83 are distinct)" in text


def test_arms_that_the_law_of_a_claim_orders_wrongly_are_said(tiny):
    last = tiny.plan["registered"][-1]
    scores = {arm: sum(tiny.row(arm).scores.values()) for arm in ("window", "full", "self")}
    order = sorted(scores, key=scores.get)
    for law, said in (
        (dict(zip(order, (1, 2, 3), strict=True)), False),
        (dict(zip(order, (3, 2, 1), strict=True)), True),
    ):
        claim = vars(study.Claim("window", "full", law=law))
        plan = tiny.plan | {"registered": [last | {"claims": [claim]}]}
        remarks = Report(tiny.folder, plan, tiny.records).verdicts[0].remarks
        assert any("its law orders wrongly" in remark for remark in remarks) is said


def test_few_seeds_for_many_claims_are_warned_of_before_training(tmp_path):
    claims = [study.Claim("window", "full"), study.Claim("full", "self")]
    options = {"budgets": study.Budget(None, 1), "controls": ("full", "self"), "seeds": 6}
    with pytest.warns(
        UserWarning, match="seeds: with 6, no verdict is possible on all of 2 claims"
    ):
        tiny_run(tmp_path, claims=claims, **options)


def test_a_score_above_its_ceiling_is_said_aloud(tiny, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(tiny.folder, folder)
    path = folder / records.TRIALS
    shuffled = [
        json.loads(line) for line in path.read_text("utf-8").splitlines() if '"shuffled"' in line
    ]
    with path.open("a") as file:
        file.writelines(json.dumps({**one, "accuracy": 1.0}) + "\n" for one in shuffled)
    found = report(folder)
    assert [row.arm for row in found.broken] == ["shuffled labels, window"]
    assert "**above its ceiling**" in str(found)
    assert "**above chance**" in str(found)
    with pytest.raises(ControlError, match=r"shuffled labels, window .* should be at chance"):
        found.check_controls()
    assert not tiny.broken


def test_shuffled_labels_are_judged_by_the_mean_of_the_seeds(tiny):
    """What is learned of them is right or wrong of many answers at once; a law holds of every
    seed.
    """
    some = tiny.row("shuffled labels, window")
    shuffled, law = (
        {**some.prediction, "kind": kind, "ceiling": 0.263} for kind in ("shuffled", "arm")
    )
    seeds = (0.27, 0.214, 0.25, 0.21, 0.234, 0.35, 0.362, 0.236, 0.198, 0.176)  # over_squashing

    def holds(prediction, scores):
        record = some.runs[0].record
        runs = [
            Run(seed, 0, {**record, "accuracy": score, "answers": 500}, 0.263)
            for seed, score in enumerate(scores)
        ]
        about = some.about | {"arms": some.about["arms"] | {some.arm: prediction}, "held": 500}
        return replace(some, about=about, runs=runs).holds

    assert holds(shuffled, seeds)
    assert holds(law, seeds) is False
    assert holds(shuffled, [score + 0.1 for score in seeds]) is False
    assert holds(shuffled, [0.36]) is False  # one seed: of guesses


def test_every_draw_of_a_rewiring_has_a_ceiling_and_is_held_to_it(tmp_path):
    """Tokens of 4 steps ago along rewirings of windows of 3, in 2 layers: each draw reaches other
    ones.
    """
    tokens = tiny_data().inputs
    needs = ga.from_rule(lambda t, s: t - s == 4, N)
    targets = tokens.roll(4, 1).index_fill(1, torch.arange(4), -100)
    data, arms = (
        tiny_data(targets=targets, needs=needs, causal=True),
        {"window": ga.graphs.sliding_window(N, 3, causal=True)},
    )
    given = {"readout": "node", "controls": ("in-degrees",), "budgets": [study.Budget(None, 2)]}
    about, found = tiny_comparison(arms, data, **given), tiny_run(tmp_path, arms, data, **given)
    row, told = found.row("in-degrees of window"), found.row("in-degrees of window").prediction
    asked = torch.arange(4, N)
    for seed, draw in itertools.product(range(2), range(3)):
        field = ga.analysis.receptive_field(
            [about.drawn("in-degrees", "window", seed, draw).first] * 2, residual=True
        ).graphs[-1]
        share = float(field.contains(asked, asked - 4).double().mean())
        assert told["ceilings"][seed][draw] == pytest.approx(share + (1 - share) * data.chance)
    flat = [ceiling for of_seed in told["ceilings"] for ceiling in of_seed]
    assert len(set(flat)) > 1
    assert told["ceiling"] == pytest.approx(sum(flat) / 6)
    assert [ceiling for _, ceiling in row.bounded] == flat
    assert row.holds
    assert f"| {told['ceiling']:.3f} | {row.interval} |" in str(found)
    least = flat.index(min(flat))
    one = next(x for x in row.records if (x["seed"], x["draw"]) == divmod(least, 3))
    records.Records(tmp_path).append({**one, "accuracy": max(flat)})
    assert [row.arm for row in report(tmp_path).broken] == ["in-degrees of window"]
    longer = with_draws(about, "in-degrees of window", told, range(3))["ceilings"]
    assert (longer[:2], len(longer)) == (told["ceilings"], 3)


def scored_anew(tiny, folder, scores, metric="accuracy"):
    """The tiny study, whose trials have the scores of their arms."""
    shutil.copytree(tiny.folder, folder)
    plan = records.read_plan(folder)
    plan["registered"][0]["claims"] = [vars(study.Claim("window", "full", margin=0.02, equal=True))]
    records.write_plan(folder, plan)
    kept = records.Records(folder)
    for one in list(kept.of_key.values()):
        kept.append({**one, "accuracy": scores.get(one["arm"], 0.3), "answers": 100})


def test_equal_arms_that_could_not_differ_and_arms_at_chance_are_warned_of(tiny, tmp_path):
    scored_anew(tiny, tmp_path / "both", {"window": 1.0, "full": 1.0})
    with pytest.warns(UserWarning, match="both within the margin of a perfect score"):
        found = report(tmp_path / "both")
    assert "| not decided; both within the margin of a perfect score |" in str(found)
    assert (
        str(found)
        .split("\n\n")[1]
        .startswith("**Warning:** window = full within 0.02: both within")
    )
    scored_anew(tiny, tmp_path / "one", {"window": 1.0, "full": 0.97})
    assert report(tmp_path / "one").cautions == []
    scored_anew(tiny, tmp_path / "none", {})
    with pytest.warns(
        UserWarning, match="study: no arm is more than 4 standard errors above chance, 0.458; their"
    ):
        found = report(tmp_path / "none")
    assert found.verdicts[0].remarks[1:] == ("both at chance",)
    shown = CliRunner().invoke(app, ["study", "report", str(tmp_path / "none")])
    assert "warning: study: no arm is more than 4 standard errors" in shown.stderr


def test_an_interval_of_accuracies_stays_below_1(tiny, tmp_path):
    row = tiny.row("window", examples=11)

    def scored(scores, **about):
        record = row.runs[0].record
        runs = [Run(i, 0, {**record, "accuracy": x, "bits": x}, None) for i, x in enumerate(scores)]
        return replace(row, about=row.about | about, runs=runs)

    scores = (0.9, 0.95, 1.0)
    assert scored(scores).interval.high < 1 < scored(scores, metric="bits").interval.high
    much, little = scored((1.0, 1.0, 1.0)), scored((0.0, 0.09, 0.0))
    assert pairs_of(much, little).difference.high < 1


def test_a_trial_that_diverged_has_no_score_and_is_said_aloud(tiny, tmp_path):
    folder = tmp_path / "diverged"
    shutil.copytree(tiny.folder, folder)
    about = records.read_plan(folder)
    about["comparisons"]["study"]["metric"] = "bits"
    records.write_plan(folder, about)
    line = (folder / records.TRIALS).read_text("utf-8").splitlines()[0]
    one = {**json.loads(line), "bits": float("nan"), "probes": {"entropy": [float("nan")] * 2}}
    records.Records(folder).append(one)
    assert "NaN" not in (folder / records.TRIALS).read_text("utf-8")
    found = report(folder)
    assert found.counts["failed"] == 1
    assert f"failed: study, window, seed {one['seed']}: it diverged, and has no score" in str(found)
    assert found.row("window", examples=11).failed == 1
    assert ", 1 failed |" in str(found)


def test_a_row_of_several_comparisons_is_named(tiny):
    twice = [*tiny.plan["trials"], *({**one, "comparison": "other"} for one in tiny.plan["trials"])]
    both = dict.fromkeys(("study", "other"), tiny.plan["comparisons"]["study"])
    several = Report(tiny.folder, {**tiny.plan, "trials": twice, "comparisons": both}, tiny.records)
    assert several.row("window", "other").comparison == "other"
    with pytest.raises(OptionError, match=r"comparison must be named, .*: study, other"):
        several.row("window")


def test_a_cell_of_a_table_is_a_line_and_may_hold_a_bar_or_a_bracket():
    given = Table(["a", "b"], [["|x|\n<y>", "1"]])
    assert str(given).splitlines()[-1] == "| &#124;x&#124; &lt;y> | 1 |"


def test_html_is_the_markdown_with_its_figure(tmp_path):
    (tmp_path / "figure.svg").write_text("<svg/>", encoding="utf-8")
    table = Table(["a", "b"], [["*x* < 1", "y | z"]])
    text = f"# T\n\n* one\n\n* two $mc^2$\n\n![Scores](figure.svg)\n\n{table}\n"
    written = as_html(text, "<T>", tmp_path / "figure.svg")
    page = Elements(written)
    assert {"h1", "p", "img", "table", "ul", "li", "em"} <= page.found
    assert "<title>&lt;T&gt;</title>" in written
    assert "two mc^2" in page.text
    assert "x < 1" in page.text
    assert "y | z" in page.text
    assert "figure.svg" not in written
    assert "<img" not in as_html(text, "<T>", tmp_path / "none.svg")


def test_a_summary_may_hold_tables(tiny):
    found = replace(tiny, summary=lambda report: ["## In short", Table(["rows"], [["11"]])])
    assert "\n\n## In short\n\n| rows |\n|---|\n| 11 |\n\n## Scores" in str(found)


def test_what_cannot_be_said_of_a_study_s_own_text_stands_at_the_top(tiny):
    about = "*Question.* What?\n\n*What cannot be said.* How much.\n\nMore."
    last = tiny.plan["registered"][-1] | {"claims": []}
    text = str(replace(tiny, plan=tiny.plan | {"about": about, "registered": [last]}))
    top, _, rest = text.partition("## Scores")
    assert "## What cannot be said\n\nHow much.\n\n* Which arm is better" in top
    assert "*Question.* What?\n\nMore." in rest


class Elements(HTMLParser):
    """Elements of a page with their links, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found |= {tag, *(value for _, value in attributes)}

    def handle_data(self, data):
        self.text += data


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "*b* &lt;script&gt; `c`",
    "_d_ | ![e](f) ~~g~~",
]
HOSTILE += ["</title><script>$x$ and $y$"]


@pytest.mark.slow
def test_names_are_text_wherever_they_stand(tmp_path, pictures):
    reader = (
        pytest.importorskip("markdown_it")
        .MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
    )
    arms = {
        name: ga.graphs.sliding_window(N, 3 + 2 * i, causal=False) for i, name in enumerate(HOSTILE)
    }
    claims = [
        study.Claim(HOSTILE[i - 1], HOSTILE[i], because=HOSTILE[i - 2]) for i in range(len(HOSTILE))
    ]
    given = {"claims": claims, "seeds": 1, "budgets": study.Budget(None, 1), "controls": ()}
    found = tiny_run(tmp_path, arms, readout="token", name=HOSTILE[0], **given)
    one = next(iter(found.records.of_key.values()))
    for name in HOSTILE:
        found.plan["study"], found.plan["command"] = name, f"run '{name}'"
        found.plan["comparisons"][HOSTILE[0]]["baselines"] = {name: 0.5}
        one |= {"state": "failed", "error": name}
        page = Elements(as_html(str(found), name, tmp_path / "no figure"))
        assert page.text.count(name) >= 5
        assert not {"img", "script", "a", "s", "javascript:alert(1)"} & page.found
        page = Elements(reader.render(str(found).replace("![Scores of every arm](figure.svg)", "")))
        assert not {"img", "script", "a", "s", "javascript:alert(1)"} & page.found
        assert name in page.text
        assert all(page.text.count(each) >= 3 for each in HOSTILE)
        assert f"Study: {name}" in page.text
        assert f"{name}, the study's own: accuracy 0.500" in page.text
        assert f"run '{name}'" in page.text
        assert f"seed 0: {name}" in page.text
    elements = {
        element.tag.rpartition("}")[2]
        for element in ElementTree.parse(found.folder / "figure.svg").iter()
    }
    assert not {"img", "script", "a"} & elements


def test_a_diverged_model_has_no_accuracy_either(tiny, tmp_path):
    """The largest of logits that are no numbers is the first class, and chance would be its
    score.
    """
    folder = tmp_path / "nan"
    shutil.copytree(tiny.folder, folder)
    one = json.loads((folder / records.TRIALS).read_text("utf-8").splitlines()[0])
    records.Records(folder).append(
        {**one, "bits": float("nan"), "loss": float("nan"), "accuracy": 0.4}
    )
    found = report(folder)
    assert found.counts["failed"] == 1
    assert one["seed"] not in found.row(one["arm"], examples=one["examples"]).scores


@pytest.mark.slow
def test_a_report_made_again_is_the_same_bytes_and_names_are_verbatim(tiny, tmp_path, pictures):
    folder = tmp_path / "again"
    shutil.copytree(tiny.folder, folder)
    plan = json.dumps(records.read_plan(folder)).replace('"window"', r'"_a $\\frac$"')
    records.write_plan(folder, json.loads(plan))
    found = []
    for _ in range(2):
        report(folder)
        found.append([(folder / f"figure.{ending}").read_bytes() for ending in ("pdf", "svg")])
    assert found[0] == found[1]
    assert rb"_a $\frac$" in found[0][1]
    assert b"<dc:date>" not in found[0][1]
    assert b"CreationDate" not in found[0][0]


def test_bits_are_better_when_fewer_and_shuffled_labels_are_judged_by_accuracy(tmp_path):
    found = tiny_run(tmp_path, metric="bits", controls=("full", "shuffled"), seeds=1)
    one, full, shuffled = (
        found.row(name) for name in ("window", "full", "shuffled labels, window")
    )
    assert found.differences(one, full) == [full.scores[0] - one.scores[0]]
    told = next(x for x in found.records.of_key.values() if x["kind"] == "shuffled")
    assert (shuffled.metric, shuffled.scores, one.metric) == (
        "accuracy",
        {0: told["accuracy"]},
        "bits",
    )
    assert found.differences(shuffled, full) == []


def said(*words, status=0):
    result = CliRunner().invoke(app, ["study", *words])
    assert result.exit_code == status, result.output
    return result


def test_the_command_line_reads_studies_and_refuses(tiny):
    assert "# Study: study" in said("report", str(tiny.folder), "--full").stdout
    words = said("report", str(tiny.folder))
    assert len(words.stdout) < 1400
    assert re.search(r"^study: trials: 38 planned, 38 done, 0 failed; seeds: 2", words.stdout)
    assert re.search(r"^\| window \| .*\| \d\.\d+ .*\| did not fit", words.stdout, re.MULTILINE)
    assert f"*did not fit*: {CLASSES['did not fit']}" in words.stdout.splitlines()[-1]
    assert f"are in {tiny.folder}; --full prints" in words.stderr
    assert json.loads(said("report", str(tiny.folder), "--json").stdout)["study"] == "study"
    recall = str(ROOT / "examples" / "studies" / "recall" / "study.py")
    assert "--out must be a folder" in said(recall, status=2).output
    assert (
        "a study must be a Python file that exists" in said("digit", "--out", "x", status=2).output
    )
    assert "must define study()" in said(__file__, "--out", "x", status=2).output
    assert "needs the folder" in said("report", status=2).output


RECIPE = re.search(
    r"```python\n# examples/studies/\S+\n(.*?)```",
    (ROOT / "examples" / "site" / "pages" / "extending.md").read_text("utf-8"),
    re.DOTALL,
)[1]


def test_a_file_of_a_user_has_the_whole_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = RECIPE.replace(
        "seeds=2", "summary=lambda report: [f'{len(report.rows)} rows.'], seeds=2"
    )
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    run = ("mine.py", "--out", ".", "--quick", "--processes", "0")
    first = said(*run, "--seeds", "1")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert (
        "*Question.* Does a convolution along a window learn more than one along all pairs?\n\n* tr"
        in page
    )
    assert "\n\n2 rows.\n\n## Scores\n\n|" in page
    assert "`graphattn study mine.py --quick --seeds 1 --out .`" in page
    assert "warning: neighbours: no arm is more than 4 standard errors" in first.stderr
    assert "the report and its figures are in ." in first.stderr
    assert len((tmp_path / records.TRIALS).read_text("utf-8").splitlines()) == 2
    said(*run)  # goes on, with as many seeds as the study has
    assert len((tmp_path / records.TRIALS).read_text("utf-8").splitlines()) == 4
    page = (tmp_path / "report.md").read_text("utf-8")
    assert "2 rows" not in str(report(tmp_path)).replace(str(tmp_path), "")
    assert (tmp_path / "report.md").read_text(
        "utf-8"
    ) == page  # made with the study's summary, and kept


@pytest.mark.slow
def test_processes_import_a_study_file(tmp_path):
    """Its module is a model of the user's own."""
    (tmp_path / "mine.py").write_text(RECIPE, encoding="utf-8")
    found = run_file(tmp_path / "mine.py", tmp_path / "out", quick=True, seeds=1, processes=1)
    assert found.counts["done"] == 2


def test_a_page_explains_what_it_uses(tmp_path):
    targets = torch.arange(N).expand(SAMPLES, -1) % 2
    options = {"readout": "node", "controls": ("shuffled",), "budgets": study.Budget(None, 2)}
    found = tiny_run(tmp_path, data=tiny_data(targets=targets), **options)
    page = str(found)
    assert "(chance 1.000, sd" in page  # by the most frequent class of each node
    assert "bag of nodes" not in page
    assert "fit unknown" not in page
    assert f"*did not fit*: {CLASSES['did not fit']}" in page


def test_controls_whose_nodes_depend_on_more_or_on_fewer_are_named(tmp_path):
    """A star's are all within two steps; those of its in-degrees are not."""
    star = ga.graphs.global_tokens(7, (0,)) | ga.graphs.self_loops(7)
    ring = ga.graphs.circulant(7, (0, 1, 2))
    changes = {"controls": ("rewired",), "budgets": study.Budget(None, 1), "seeds": 1}
    with pytest.warns(UserWarning, match="whose nodes may depend on more or on fewer"):
        found = tiny_run(tmp_path, {"star": star, "ring": ring}, **changes)
    depends = {
        name: arm["depends_on_mean"]
        for name, arm in found.plan["comparisons"]["study"]["arms"].items()
    }
    assert depends["in-degrees of star"] < depends["star"]
    assert depends["rewired ring"] > depends["ring"]
    text = str(found)
    star, own = depends["in-degrees of star"], depends["star"]
    assert f"a node depends on {star:.1f} (the arm's: {own:.1f})" in text
