"""Reports computed again from their trials, and digits that were changed by hand."""

import json
import re
from pathlib import Path

import pytest
from tiny_study import tiny_run
from typer.testing import CliRunner

from graphattn.cli.app import app
from graphattn.errors import OptionError
from graphattn.study import Budget
from graphattn.study.pages.recount import recount

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
TRAINED = sorted(path.parent.relative_to(STUDIES) for path in STUDIES.glob("**/trials.jsonl"))
MEASURED = ("theory", "lra_audit")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    few = {"budgets": Budget(None, 2), "controls": ("full", "shuffled"), "seeds": 3}
    return tiny_run(tmp_path_factory.mktemp("recount") / "tiny", **few).folder


def changed(made, tmp_path, name, change):
    """A copy of a study of which one file was changed."""
    for path in made.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / name).read_text("utf-8")
    (tmp_path / name).write_text(change(text), encoding="utf-8")
    return tmp_path


def digit(text):
    """The third decimal of the last number between 0 and 1, another one."""
    at = [*re.finditer(r"0\.\d{3}", text)][-1].end() - 1
    return f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"


@pytest.mark.slow
def test_every_number_of_a_report_is_counted_and_stands(made):
    result = recount(made)
    assert result.ok
    assert set(result.numbers) == {
        "report.json",
        "report.md",
        "report.csv",
        "report.tex",
        "report.html",
    }
    rows = json.loads((made / "report.json").read_text("utf-8"))["rows"]
    assert result.numbers["report.json"] > 10 * len(rows)
    assert "are those of its" in str(result)


@pytest.mark.parametrize("name", ["report.md", "report.csv", "report.tex", "report.html"])
def test_a_digit_changed_in_a_file_is_found_and_named(made, tmp_path, name):
    result = recount(changed(made, tmp_path, name, digit))
    assert {difference.file for difference in result.differences} == {name}
    assert len(result.differences) == 1


def test_other_words_are_no_other_numbers_but_a_verdict_in_a_table_is_one(made, tmp_path):
    """A footnote that a later version of the page words otherwise is said, and is no fault."""

    def reworded(text):
        return text.replace("*Spread*: distance", "*Spread*: the distance", 1)

    result = recount(changed(made, tmp_path, "report.md", reworded))
    assert result.ok
    assert [*result.unchecked] == ["1 line of prose in report.md"]

    def renamed(text):
        return text.replace("| window | none", "| wall | none", 1)

    folder = changed(made, tmp_path, "report.md", lambda text: renamed(reworded(text)))
    result = recount(folder)
    assert [difference.file for difference in result.differences] == ["report.md"]


@pytest.mark.parametrize("name", ["report.md", "report.html"])
@pytest.mark.parametrize(
    ("stands", "edited"),
    [
        ("bit for bit: yes", "bit for bit: no"),
        ("as many parameters: yes", "as many parameters: no"),
        ("say little", "say much"),  # a warning
        (": at chance", ": NOT at chance"),
    ],
)
def test_a_check_or_a_warning_in_other_words_is_another_result(
    made, tmp_path, name, stands, edited
):
    def reworded(text):
        assert stands in text
        return text.replace(stands, edited, 1)

    result = recount(changed(made, tmp_path, name, reworded))
    assert [difference.file for difference in result.differences] == [name]


def test_a_score_changed_in_the_numbers_is_found_by_its_place(made, tmp_path):
    def better(text):
        told = json.loads(text)
        told["rows"][1]["scores"]["1"] += 0.001
        return json.dumps(told)

    result = recount(changed(made, tmp_path, "report.json", better))
    assert [d.where for d in result.differences] == ["rows[1].scores.1"]


def test_a_trial_changed_after_the_report_is_found(made, tmp_path):
    """The scores that follow from it, and the chain of hashes that it breaks."""

    def better(text):
        return text.replace('"accuracy": 0.', '"accuracy": 0.9', 1)

    result = recount(changed(made, tmp_path, "trials.jsonl", better))
    places = {difference.where for difference in result.differences}
    assert any(place.startswith("rows[0].scores") for place in places)
    assert "cautions" in places


def test_the_command_line_names_what_differs_and_ends_with_status_1(made, tmp_path):
    run = CliRunner().invoke
    assert run(app, ["study", "--check", str(made)]).exit_code == 0
    folder = changed(made, tmp_path, "report.md", digit)
    result = run(app, ["study", "--check", str(folder)])
    assert result.exit_code == 1
    assert "report.md, line" in result.output
    assert re.search(
        r"study: 1 place of .*report\.md.* \([\d,]+ numbers\) differs from its", result.output
    )
    as_json = run(app, ["study", "--check", str(folder), "--json"])
    assert len(json.loads(as_json.stdout)["differences"]) == 1


def test_a_page_of_the_studys_own_is_checked_where_its_file_stands(made, tmp_path):
    with pytest.raises(OptionError, match="folder of a study with a report"):
        recount(tmp_path)
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OptionError, match=r"no plan\.json"):
        recount(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if str(name) in ("digits", "recall") else pytest.mark.slow)
        for name in (*TRAINED, *MEASURED)
    ],
)
def test_reports_in_the_repository_are_those_of_their_trials(name):
    result = recount(STUDIES / name)
    assert result.ok, str(result)


OWN_PAGE = """
from beside import TEXT
from tiny_study import tiny_comparison

import graphattn as ga
from graphattn.study import Budget, Study


def study():
    window = ga.graphs.sliding_window(7, 3, causal=False)
    one = tiny_comparison({"window": window}, budgets=[Budget(None, 2)], controls=())
    return Study("tiny", [one], seeds=3, summary=lambda found: [TEXT])
"""


@pytest.fixture(scope="module")
def with_own_page(tmp_path_factory):
    """A folder with a study file, what it imports, and the study that the command line ran of it."""
    root = tmp_path_factory.mktemp("own")
    (root / "files").mkdir()
    (root / "files" / "tiny.py").write_text(OWN_PAGE, encoding="utf-8")
    (root / "files" / "beside.py").write_text(
        'TEXT = "A share of 0.125 is chance."\n', encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        line = ["study", "files/tiny.py", "--out", "made", "--processes", "0"]
        assert CliRunner().invoke(app, line).exit_code == 0
    return root


@pytest.mark.slow
def test_a_summary_is_checked_by_the_file_of_the_recorded_command(
    with_own_page, tmp_path, monkeypatch
):
    monkeypatch.chdir(with_own_page)
    assert recount("made").unchecked == {}
    page = changed(
        with_own_page / "made", tmp_path, "report.md", lambda text: text.replace("0.125", "0.126")
    )
    assert [(d.stands, d.computed) for d in recount(page).differences] == [("0.126", "0.125")]


@pytest.mark.slow
def test_a_summary_whose_file_has_gone_is_checked_by_the_one_that_is_given(
    with_own_page, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made = str(with_own_page / "made")
    run = CliRunner().invoke
    result = run(app, ["study", "--check", made])
    assert result.exit_code == 0
    skipped = [line for line in result.stdout.splitlines() if line.startswith("not checked")]
    assert len(skipped) == 1
    assert skipped[0].startswith("not checked: report.md, report.html: ")
    assert f"graphattn study FILE.py --check --out {made}" in skipped[0]
    file = str(with_own_page / "files" / "tiny.py")
    result = run(app, ["study", file, "--check", "--out", made])
    assert result.exit_code == 0
    assert "not checked" not in result.stdout
    other = tmp_path / "other.py"
    other.write_text(OWN_PAGE.replace('Study("tiny"', 'Study("another"'), encoding="utf-8")
    (tmp_path / "beside.py").write_text("TEXT = ''", encoding="utf-8")
    result = run(app, ["study", str(other), "--check", "--out", made])
    assert "must be the file of tiny" in result.output
    result = run(app, ["study", file, "--check"])
    assert "FILE.py --check --out DIR" in result.output


MEASURED_HERE = """
from untrained import Finding, Findings


def study():
    findings = [Finding("slope", -0.5, {slope!r}, 0.01), Finding("count", 3, {count!r}, 0)]
    return Findings("Tiny", "Measured.", {{"Part": findings}}, None)
"""


@pytest.mark.parametrize(
    ("slope", "count", "differ"),
    [
        (-0.49951, 3, set()),
        (-0.4985, 3, {"report.json", "report.md"}),
        (-0.4995, 4, {"report.json", "report.md"}),
    ],
)
def test_a_measurement_may_differ_by_rounding_and_a_count_may_not(tmp_path, slope, count, differ):
    """On another processor the fifth digit of a slope is another one."""
    there = {"question": "slope", "predicted": -0.5, "measured": -0.4995, "tolerance": 0.01}
    counted = {"question": "count", "predicted": 3, "measured": 3, "tolerance": 0}
    rows = [{**row, "source": "", "holds": True} for row in (there, counted)]
    stored = {"title": "Tiny", "failed": 0, "parts": {"Part": rows}}
    (tmp_path / "report.json").write_text(json.dumps(stored), encoding="utf-8")
    page = "Measured.\n\n2 of 2 predictions hold.\n\n## Part\n\n"
    page += (
        "| question | predicted | within | measured | holds | source |\n|---|---|---|---|---|---|\n"
    )
    page += "| slope | -0.5 | 0.01 | -0.4995 | yes |  |\n| count | 3 | exactly | 3 | yes |  |\n"
    (tmp_path / "report.md").write_text(f"# Tiny\n\n{page}", encoding="utf-8")
    (tmp_path / "study.py").write_text(
        MEASURED_HERE.format(slope=slope, count=count), encoding="utf-8"
    )
    assert {place.file for place in recount(tmp_path).differences} == differ
