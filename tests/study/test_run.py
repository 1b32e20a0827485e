"""Studies go on where they were, keep what failed, and say first what they expect."""

import base64
import json
import pickle
import re
import shutil
import time
from importlib import metadata

import pytest
import torch
from tiny_study import N, greedy, tiny_data, tiny_run

import graphattn as ga
from graphattn.errors import ControlError, GraphAttnError, OptionError
from graphattn.study import comparison, plan, pool, records, report
from graphattn.study import train as fitting
from graphattn.study import train as trial
from graphattn.study.claims import ON_OTHERS
from graphattn.study.network import Network
from graphattn.study.trials import trials_of


def lines_of(folder):
    return (folder / records.TRIALS).read_bytes().splitlines(keepends=True)


def scores(folder):
    return {r.comparison + r.arm + str(r.examples): r.scores for r in report(folder).rows}


def test_a_killed_study_goes_on_and_gives_the_same_numbers(tiny, tmp_path):
    folder = tmp_path / "killed"
    shutil.copytree(tiny.folder, folder)
    kept, cut = lines_of(folder)[:5], lines_of(folder)[5]
    (folder / records.TRIALS).write_bytes(b"".join(kept) + cut[: len(cut) // 2])
    assert "**Incomplete:** 33 trials have not run" in str(report(folder))
    tiny_run(folder, claims=tiny.registered)
    assert lines_of(folder)[:5] == kept
    assert len(lines_of(folder)) == len(lines_of(tiny.folder))
    assert scores(folder) == scores(tiny.folder)


def test_a_finished_study_trains_nothing_and_more_seeds_train_only_these(
    tiny, tmp_path, monkeypatch
):
    folder = tmp_path / "more"
    shutil.copytree(tiny.folder, folder)
    seen = []
    monkeypatch.setattr(
        trial,
        "train",
        lambda *given: seen.append(given[2].seed) or {"state": "failed", "error": "x"},
    )
    tiny_run(folder, claims=tiny.registered)
    assert seen == []
    found = tiny_run(folder, claims=tiny.registered, seeds=3)
    assert set(seen) == {2}
    assert [one["seeds"] for one in found.plan["registered"]] == [2, 3]
    assert found.late == []
    assert found.verdicts[0].remarks[1:] == ("seeds extended after looking",)
    assert "did not fit; seeds extended after looking |\n" in str(found)
    # for good
    assert (
        tiny_run(folder, claims=tiny.registered).verdicts[0].remarks[1]
        == "seeds extended after looking"
    )


def test_fresh_seeds_are_no_extension_of_those_that_were_measured(tiny, tmp_path):
    folder = tmp_path / "fresh"
    shutil.copytree(tiny.folder, folder)
    more = [*tiny.registered, ga.study.Claim("full", "window")]
    fresh = tiny_run(folder, claims=more, seeds=range(4, 6))
    assert fresh.late == []
    assert [v.remarks[1:] for v in fresh.verdicts] == [(ON_OTHERS,), ()]
    assert "1 claim, 2 seeds\n" in str(fresh)
    assert "2 claims, 2 seeds from 4\n" in str(fresh)
    assert {*fresh.row("full").scores} == {4, 5}
    # what was claimed of fresh seeds alone is late on the old ones
    assert tiny_run(folder, claims=more).late == [str(more[1])]


def test_a_range_of_seeds_with_gaps_is_refused(tmp_path):
    with pytest.raises(OptionError, match="seeds must be"):
        tiny_run(tmp_path, seeds=range(0, 4, 2))


def test_a_readout_out_of_reach_is_warned_of_before_training(tmp_path, monkeypatch, recwarn):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path, readout="token", controls=(), seeds=1)
    assert "its readout depends on 42.9% of what it may need" in str(
        recwarn.pop(UserWarning).message
    )


@pytest.mark.slow
def test_a_trial_beyond_the_memory_fails_and_the_others_go_on(tmp_path):
    given = {
        "model": ga.study.CustomModel(greedy),
        "controls": (),
        "seeds": 2,
        "budgets": comparison.Budget(None, 1),
    }
    found = tiny_run(tmp_path, processes=1, **given)
    assert found.counts["failed"] == 1
    assert "memory" in next(found.failures)


@pytest.mark.slow
def test_one_trial_in_a_process_of_its_own_gives_the_same_number(tiny, tmp_path):
    folder = tmp_path / "process"
    shutil.copytree(tiny.folder, folder)
    (folder / records.TRIALS).write_bytes(b"".join(lines_of(folder)[:-1]))
    tiny_run(folder, claims=tiny.registered, processes=1)
    ours, theirs = (json.loads(lines_of(each)[-1]) for each in (tiny.folder, folder))
    assert (ours["key"], ours["bits"], ours["initial"]) == (
        theirs["key"],
        theirs["bits"],
        theirs["initial"],
    )


class Hours:
    """A trial that takes them."""

    def __reduce__(self):
        return time.sleep, (9999,)


@pytest.mark.slow
def test_a_process_ends_with_the_one_that_asked_it():
    """Killed, that one can tell it nothing; that the pipe is closed does, in the midst of a trial,
    too.
    """
    process = pool.Worker()._start()
    task = {"trial": base64.b64encode(pickle.dumps(Hours())).decode()}
    process.stdin.write(json.dumps(task).encode() + b"\n")
    process.stdin.close()
    try:
        assert process.wait(timeout=200) == 1
    finally:
        process.kill()


def test_a_trial_that_fails_is_kept_shown_and_tried_again(tmp_path, monkeypatch):
    real, broken = trial.train, [True]

    def fails_once(comparison, graphs, one):
        if one.arm == "full" and broken:
            raise ValueError("no luck")
        return real(comparison, graphs, one)

    monkeypatch.setattr(trial, "train", fails_once)
    given = {"controls": ("full",), "seeds": 1, "budgets": comparison.Budget(None, 2)}
    first = tiny_run(tmp_path, **given)
    assert first.counts == {"planned": 2, "done": 1, "capped": 0, "failed": 1}
    assert "failed: study, full, seed 0: ValueError: no luck" in str(first)
    broken.clear()
    again = tiny_run(tmp_path, **given)
    assert again.counts["done"] == 2
    assert [json.loads(line)["state"] for line in lines_of(tmp_path)] == ["done", "failed", "done"]


def test_predictions_are_on_disk_before_the_first_trial(tmp_path, monkeypatch):
    def interrupted(*given):
        plan = records.read_plan(tmp_path)
        assert plan["comparisons"]["study"]["arms"]["window"]["depends_on_most"] == 5
        assert plan["registered"][0]["trials_on_disk"] == 0
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path)
    assert not (tmp_path / records.TRIALS).exists()


def test_a_study_interrupted_before_its_plan_was_written_goes_on(tmp_path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    given = {"controls": (), "seeds": 1, "budgets": comparison.Budget(None, 1)}
    with monkeypatch.context() as patched:
        patched.setattr(plan, "measured", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tiny_run(tmp_path, **given)
    assert tiny_run(tmp_path, **given).counts["done"] == 1


def test_claims_made_after_trials_are_told_from_those_before(tiny, tmp_path):
    folder = tmp_path / "late"
    shutil.copytree(tiny.folder, folder)
    found = tiny_run(folder, claims=[*tiny.registered, ga.study.Claim("full", "window")])
    assert [one["trials_on_disk"] > 0 for one in found.plan["registered"]] == [False, True]
    assert found.late == ["full > window"]
    assert found.verdicts[1].remarks[1:] == ("late",)
    assert re.search(r"\n\| full > window \|.*did not fit; .*; late \|\n", str(found))


def test_words_changed_after_trials_are_said(tiny, tmp_path):
    folder = tmp_path / "reworded"
    shutil.copytree(tiny.folder, folder)
    again = tiny_run(folder, claims=tiny.registered)
    assert "words were changed" not in str(again)
    records.write_plan(folder, {**again.plan, "about": "As it was foretold."})
    for _ in range(2):
        again = tiny_run(folder, claims=tiny.registered)
        assert "These words were changed after training had begun, last on 20" in str(again)


def test_claims_withdrawn_after_looking_still_count(tiny, tmp_path):
    folder = tmp_path / "withdrawn"
    shutil.copytree(tiny.folder, folder)
    more = [*tiny.registered, ga.study.Claim("full", "window")]
    for claims in (more, more[1:], more[1:]):
        found = tiny_run(folder, claims=claims)
    assert found.withdrawn == [str(tiny.registered[0])]
    assert "other claims withdrawn after looking" in found.verdicts[0].remarks
    assert ", 1 withdrawn after looking" in str(found)
    assert tiny_run(folder, claims=more).withdrawn == []


@pytest.mark.slow
def test_other_budgets_and_positions_are_said_with_their_date(tiny, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(tiny.folder, folder)
    assert "Changed" not in str(tiny_run(folder, claims=tiny.registered))
    longer = tiny_run(folder, claims=tiny.registered, budgets=[ga.study.Budget(11, 5)], seeds=1)
    assert "\n* changed 20" in str(longer)
    assert "1 claim, 1 seed, other positions or budgets\n" in str(longer)
    remarks = ("seeds reduced after looking", "positions or budgets changed after looking")
    assert longer.verdicts[0].remarks[1:] == remarks


def test_a_working_tree_that_nobody_installed_runs_a_study(tiny, tmp_path, monkeypatch):
    def version(name):
        if name in ("graphattn", "llvmlite"):
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    installed = metadata.version
    monkeypatch.setattr(metadata, "version", version)
    found = tiny_run(tmp_path, controls=(), seeds=1)
    assert found.counts["done"] == 2
    assert {
        name: found.plan["machine"]["versions"][name] for name in ("graphattn", "llvmlite")
    } == {
        "graphattn": ga.__version__,
        "llvmlite": None,
    }


def test_a_claim_of_arms_measured_by_other_names_is_late(tiny, tmp_path):
    folder = tmp_path / "renamed"
    shutil.copytree(tiny.folder, folder)
    arms = {"near": ga.graphs.sliding_window(N, 3, causal=False)}
    assert tiny_run(folder, arms, claims=[ga.study.Claim("near", "full")]).late == ["near > full"]
    assert len(lines_of(folder)) == len(lines_of(tiny.folder))


def test_arms_with_the_same_edges_share_a_result(tmp_path):
    arms = {"all": ga.graphs.full(N), "every": ga.graphs.full(...)}
    tiny_run(tmp_path, arms, controls=(), seeds=1)
    assert len(lines_of(tmp_path)) == 2
    assert len(records.read_plan(tmp_path)["trials"]) == 4


def test_arms_that_did_not_start_alike_are_refused_and_said_aloud(tiny, tmp_path):
    assert "with as many parameters: yes" in str(tiny)
    folder = tmp_path / "unlike"
    shutil.copytree(tiny.folder, folder)
    one = next(one for one in tiny.records.of_key.values() if one["arm"] == "full")
    records.Records(folder).append({**one, "initial": "another"})
    found = report(folder)
    assert "with as many parameters: **no**, full of" in str(found)
    with pytest.raises(ControlError, match=r"full of .* started as \('another'"):
        found.check_controls()


def test_folders_of_other_things_are_refused(tiny, tmp_path):
    def refused(words, out=tiny.folder, **changes):
        with pytest.raises(GraphAttnError, match=words):
            tiny_run(out, **changes)

    refused("holds the study 'study', not 'other'", name="other")
    refused("of other data", data=tiny_data(test=11))
    refused("of other data", training=ga.study.Training(batch=5))
    refused(
        "other graphs by the name of window",
        arms={"window": ga.graphs.sliding_window(N, 5, causal=False)},
    )
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    refused("holds other things", tmp_path)
    with pytest.raises(OptionError, match="holds no study"):
        report(tmp_path)
    with records.held(tmp_path):
        refused("holds other things", tmp_path)
        with pytest.raises(OptionError, match="another process"), records.held(tmp_path):
            pass


def test_labels_are_shuffled_where_it_says_so():
    about = comparison.Comparison(
        "c", {"full": ga.graphs.full(N)}, tiny_data(), budgets=[comparison.Budget(None, 3)]
    )
    one, shuffled = (t for t in trials_of(about, 1) if t.arm in ("full", "shuffled labels, full"))
    assert one.key != shuffled.key
    results = [trial.train(about, about.graphs_for(t), t) for t in (one, shuffled)]
    assert results[0]["initial"] == results[1]["initial"]
    assert results[0]["loss"] != results[1]["loss"]


def test_training_stops_at_its_loss_and_says_when_it_did_not(tmp_path):
    given = {"controls": (), "seeds": 1, "budgets": comparison.Budget(None, 3)}
    easy = tiny_run(tmp_path / "easy", training=ga.study.Training(stop=9.0), **given)
    hard = tiny_run(
        tmp_path / "hard", training=ga.study.Training(stop=1e-9, schedule="constant"), **given
    )
    taken = [next(iter(each.records.of_key.values()))["steps_taken"] for each in (easy, hard)]
    assert taken == [1, 3]
    assert [each.counts["capped"] for each in (easy, hard)] == [0, 1]
    assert "trials: 1 planned, 1 done (1 at the step limit), 0 failed" in str(hard)
    assert ", 1 at the step limit |" in str(hard)
    assert "step limit" not in str(easy).lower()


def test_every_question_counts_once(tmp_path):
    """Accuracy of a network that is right by chance alone is that of a count by hand."""
    targets = tiny_data().inputs.clone()
    targets[:, ::2] = -100
    data = tiny_data(targets=targets)
    about = comparison.Comparison("c", {"full": ga.graphs.full(N)}, data, "node", controls=())
    torch.manual_seed(0)
    network = Network(about.model, data, "node", "none").eval()
    read, held = fitting.Reading(about.data, about.graphs["full"]), torch.arange(17)
    logits = network(data.inputs[:17], (ga.graphs.full(N),), torch.arange(N))
    asked = data.targets[:17] != -100
    found = fitting.scored(network, read, data.targets, held)
    assert found["answers"] == int(asked.sum()) == 17 * 3
    assert found["accuracy"] == float(
        (logits.argmax(-1) == data.targets[:17])[asked].double().mean()
    )


def test_claims_of_no_trial_are_refused_before_training(tmp_path):
    for claim in (
        {"worse": "c"},
        {"comparison": "d"},
        {"positions": "rotary"},
        {"worse_positions": "rotary"},
        {"examples": 12},
        {"budget": 2},
    ):
        with pytest.raises(OptionError, match="no comparison has the trials of"):
            tiny_run(
                tmp_path / "out",
                claims=[ga.study.Claim(**{"better": "window", "worse": "full", **claim})],
            )
    assert not (tmp_path / "out").exists()
