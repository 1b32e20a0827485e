"""Reports computed again from their trials, and digits that were changed by hand."""

import json
import re
from pathlib import Path

import pytest
from tiny_study import tiny_run
from typer.testing import CliRunner

from graphattn.cli.app import app
from graphattn.errors import OptionError
from graphattn.study import Budget, records, report
from graphattn.study.check import rendered_again

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


def test_a_report_is_rendered_again_and_stands(made):
    result = rendered_again(made)
    assert result.ok, str(result)
    assert result.files == ["report.md", "report.json", "report.csv", "report.html"]
    assert "0 differences in" in str(result)


@pytest.mark.parametrize("name", ["report.md", "report.json", "report.csv", "report.html"])
def test_a_digit_changed_in_a_file_is_found_and_named(made, tmp_path, name):
    result = rendered_again(changed(made, tmp_path, name, digit))
    assert {difference.file for difference in result.differences} == {name}
    assert len(result.differences) == 1


def test_prose_that_was_added_or_cut_out_is_found(made, tmp_path):
    """A page is compared whole: a false result in words is one, too."""

    def reworded(text):
        start, end = text.index("## What cannot be said"), text.index("![Scores")
        return f"{text[:start]}**Result.** The window wins.\n\n{text[end:]}"

    assert not rendered_again(changed(made, tmp_path, "report.md", reworded)).ok


def forged(made, tmp_path):
    """A copy whose accuracies are others, chained again as they should be."""
    folder = changed(made, tmp_path, "report.md", str)
    kept = records.Records(folder)
    rows = [{**one, "accuracy": 0.7011 + 0.01 * one["seed"]} for one in kept.of_key.values()]
    (folder / records.TRIALS).unlink()
    again = records.Records(folder)
    for row in rows:
        again.append(row)
    records.write_plan(folder, {**records.read_plan(folder), "end": again.end})
    with pytest.warns(UserWarning, match="of no whole number of answers"):
        report(folder)
    return folder


def test_accuracies_of_no_whole_number_of_answers_were_forged(made, tmp_path):
    result = rendered_again(forged(made, tmp_path))
    assert [d.where for d in result.differences] == ["warning"]
    assert "was changed by hand" in str(result)


def test_a_trial_changed_after_the_report_is_found(made, tmp_path):
    """The scores that follow from it, and the chain of hashes that it breaks."""

    def better(text):
        return text.replace('"accuracy": 0.', '"accuracy": 0.9', 1)

    result = rendered_again(changed(made, tmp_path, "trials.jsonl", better))
    assert {"report.md", "report.csv", "trials.jsonl"} <= {d.file for d in result.differences}


def test_the_command_line_names_what_differs_and_ends_with_status_1(made, tmp_path):
    run = CliRunner().invoke
    assert run(app, ["study", "--check", str(made)]).exit_code == 0
    folder = changed(made, tmp_path, "report.md", digit)
    result = run(app, ["study", "--check", str(folder)])
    assert result.exit_code == 1
    assert "report.md, line" in result.output
    assert "study: 1 difference in report.md" in result.output
    as_json = run(app, ["study", "--check", str(folder), "--json"])
    assert len(json.loads(as_json.stdout)["differences"]) == 1


def test_a_page_of_the_studys_own_is_checked_where_its_file_stands(made, tmp_path):
    with pytest.raises(OptionError, match="folder of a study with a report"):
        rendered_again(tmp_path)
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OptionError, match="needs its study file"):
        rendered_again(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if str(name) in ("recall",) else pytest.mark.slow)
        for name in (*TRAINED, *MEASURED)
    ],
)
def test_reports_in_the_repository_are_those_of_their_trials(name):
    result = rendered_again(STUDIES / name)
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
    assert rendered_again("made").ok
    page = changed(
        with_own_page / "made", tmp_path, "report.md", lambda text: text.replace("0.125", "0.126")
    )
    (place,) = rendered_again(page).differences
    assert "0.126" in place.stands
    assert "0.125" in place.computed


@pytest.mark.slow
def test_a_summary_whose_file_has_gone_is_checked_by_the_one_that_is_given(
    with_own_page, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made = str(with_own_page / "made")
    run = CliRunner().invoke
    result = run(app, ["study", "--check", made])
    assert result.exit_code == 2
    assert "FILE.py --check --out" in result.output
    file = str(with_own_page / "files" / "tiny.py")
    result = run(app, ["study", file, "--check", "--out", made, "--again", "1"])
    assert result.exit_code == 0, result.output
    assert "1 trial trained again" in result.output
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
    assert {place.file for place in rendered_again(tmp_path).differences} == differ
