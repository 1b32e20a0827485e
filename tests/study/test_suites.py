"""Study files of examples/studies: exact figures of those that train nothing, the plans of those
that do.
"""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import graphattn as ga
from graphattn.cli.app import app
from graphattn.errors import OptionError
from graphattn.study import Data, Model
from graphattn.study.run import load, run_file

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
associative, lra_audit, over_squashing, recall, text, theory = (
    load(STUDIES / name / "study.py")
    for name in (
        "associative",
        "lra_audit",
        "over_squashing",
        "recall",
        "text",
        "theory",
    )
)
Finding, Findings = lra_audit.Finding, lra_audit.Findings


@cache
def audited():
    return lra_audit.study()


@pytest.mark.slow
def test_the_audit_of_lra_counts_what_was_read_in_its_code():
    assert audited().failed == []
    told = {
        part: [finding.measured for finding in findings]
        for part, findings in audited().parts.items()
    }
    assert told == {
        "Local": [49, 49, 48, 50, 50, "60 to 61", "60 to 61", 1009],
        "Longformer": [257, 513, 769, 1025, 1001, 1025, 1025, "1021 to 1024", "511 to 1023"],
        "Sparse": [2001, 1025, 4000, "1 to 259", False, True],
        "BigBird": [2048],
    }
    drawn = [
        count
        for counts, _ in lra_audit.READ.values()
        for count in (counts["local"], counts["longformer"])
    ]
    assert drawn == [49, 1025, 48, 1001, 50, 1025, 50, 1025]  # what the figure shows was counted


def test_local_groups_are_those_of_its_reshape():
    """By the reshape itself: tokens to (block, num_blocks), attended along the first axis."""
    slots = torch.arange(2050).view(50, 41)
    groups = {tuple(slots[:, b].tolist()) for b in range(41)}
    graph = lra_audit.local(2001)
    assert {tuple(graph.source[graph.target == t].tolist()) for t in range(41)} == groups


def test_collapse_has_the_slope_of_the_second_eigenvalue_where_it_applies():
    """The slope is read off the attention, not off the spectrum: another graph has another one."""
    causal = theory.distances(ga.graphs.causal(32), seed=7, layers=60)
    assert theory.slope(causal) == pytest.approx(-1, abs=0.01)
    chain = ga.graphs.sliding_window(32, 3, causal=False)  # symmetric: lambda is another number
    predicted = torch.tensor(1 - ga.analysis.spectral_gap(chain)).log2()
    assert theory.slope(theory.distances(chain, seed=7, layers=60)) == pytest.approx(
        float(predicted), abs=0.05
    )
    blocks = theory.distances(ga.graphs.block_local(32, 4, causal=False), seed=7, layers=40)
    assert blocks[-1] == pytest.approx(blocks[9])


@pytest.mark.parametrize(
    "part",
    [
        "position_bias",
        pytest.param("expanders", marks=pytest.mark.slow),
        "path_lengths",
        "convolution",
    ],
)
def test_theorems_hold_within_the_tolerance_stated(part):
    findings = getattr(theory, part)()
    assert [finding for finding in findings if not finding.holds] == []
    assert (
        len(findings)
        == {"position_bias": 5, "expanders": 5, "path_lengths": 5, "convolution": 1}[part]
    )


def findings(**changes):
    parts = {"one": [Finding("a", 1.0, 1.004, 0.01), Finding("b", 3, 4)]}
    return Findings(**{"title": "Two", "about": "x", "parts": parts, "draw": Figure, **changes})


def test_a_prediction_that_fails_is_said_aloud_and_folders_are_guarded(tmp_path):
    made = findings().save(tmp_path / "out")
    assert [finding.question for finding in made.failed] == ["b"]
    assert "1 of 2 predictions hold." in str(made)
    assert "| b | 3 | exactly | 4 | **no** |" in str(made)
    assert json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["failed"] == 1
    findings().save(tmp_path / "out")
    with pytest.raises(OptionError, match="holds other things than 'Three'"):
        findings(title="Three").save(tmp_path / "out")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OptionError, match="holds other things"):
        made.save(tmp_path)


def test_the_command_line_prints_a_study_that_trains_nothing(tmp_path, monkeypatch):
    """Findings have what it asks of the report of a study."""
    (tmp_path / "two.py").write_text(
        "from matplotlib.figure import Figure\nfrom untrained import Finding, Findings\n\n"
        "def study():\n    parts = {'one': [Finding('a', 1.0, 1.004, 0.01), Finding('b', 3, 4)]}\n"
        "    return Findings('Two', 'About two.', parts, Figure)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(STUDIES)
    command = ["study", str(tmp_path / "two.py"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            "Two: 1 of 2 predictions hold",
            "one: 1 of 2",
            "b: predicted 3, measured 4, within exactly",
        ],
    )
    assert f"the report and its figures are in {tmp_path / 'out'}" in done.stderr
    assert (
        "| b | 3 | exactly | 4 | **no** |" in CliRunner().invoke(app, [*command, "--full"]).stdout
    )


@pytest.mark.slow
def test_recall_predicts_its_law_in_every_cell():
    """By the receptive field: reached exactly up to L (w - 1), and the ceiling beyond it is
    chance.
    """
    assert len([cell for cell in recall.cells() if cell[0] <= 3]) >= 24
    plan = recall.study(quick=True)
    from graphattn.study.laws import predicted

    for comparison in plan.comparisons:
        L, d = (int(part[2:]) for part in comparison.name.split(", "))
        assert comparison.model.layers == L
        for name in comparison.arms:
            inside = d <= L * (int(name.split()[1]) - 1)
            assert predicted(comparison, name)["reached"] == inside
    data = recall.recalled(3)
    assert torch.equal(data.targets[:, 3:], data.inputs[:, :-3])
    assert bool((data.targets[:, :3] == -100).all())


def test_beyond_its_reach_the_jacobian_is_zero():
    """Of an untrained model, as the law says: one step inside is not."""
    from graphattn.study.network import Network

    comparison = next(c for c in recall.study(quick=True).comparisons if c.name == "L=2, d=6")
    network = Network(comparison.model, comparison.data, "node", "relative").eval()
    taken = {}
    network.embedding.register_forward_hook(
        lambda *a: taken.setdefault("x", a[2].requires_grad_().retain_grad() or a[2])
    )
    places, window = torch.arange(32), ga.graphs.sliding_window(32, 4, causal=True)
    network(comparison.data.inputs[:1], (window,), places)[0, 31].sum().backward()
    grown = taken["x"].grad[0].abs().sum(-1)
    assert float(grown[31 - 7]) == 0.0
    assert float(grown[31 - 6]) > 0.0


@pytest.mark.slow
def test_wrong_use_of_study_files_is_refused(tiny, tmp_path):
    files = {name: STUDIES / name / "study.py" for name in ("lra_audit", "over_squashing")}
    with pytest.raises(OptionError, match="trains nothing"):
        run_file(files["lra_audit"], tmp_path / "a", seeds=3)
    with pytest.raises(OptionError, match="--quick requires study"):
        run_file(files["lra_audit"], tmp_path / "a", quick=True)
    with pytest.raises(OptionError, match="seeds must be"):
        run_file(files["over_squashing"], tmp_path / "d", quick=True, seeds=0)
    with pytest.raises(OptionError, match="holds the study 'study', not 'over_squashing'"):
        run_file(files["over_squashing"], tiny.folder, quick=True)


@pytest.mark.slow
def test_baselines_know_what_a_count_knows():
    """Of 0 1 0 1 ... one character tells the next; the most frequent of 8 random values is right in
    about 3 of 8.
    """
    told = torch.arange(2).repeat(40, 8)
    alternating = Data(told[:, :-1], told[:, 1:], test=20)
    bits = text.baselines(alternating)
    assert bits["counts of pairs of characters"] < 0.1 < 0.9 < bits["counts of characters"] < 1.01
    assert list(associative.baselines(associative.data()).values()) == [
        pytest.approx(0.34, abs=0.05)
    ]


def test_associative_targets_are_the_values_of_the_keys():
    data = associative.data()
    assert data.classes == 8
    for tokens, targets in zip(data.inputs[:5].tolist(), data.targets[:5].tolist(), strict=True):
        held = dict(zip(tokens[:16:2], tokens[1:16:2], strict=True))
        assert targets == [-100] * 16 + [held[key] - 8 for key in tokens[16:]]
    assert all(bool((graph.source <= graph.target).all()) for graph in associative.arms().values())


def test_over_squashing_asks_the_root_for_the_leaf_of_its_key():
    data, arms = over_squashing.data(3, 50, 7), over_squashing.arms(3)
    for features, target in zip(data.inputs[:5], data.targets[:5].tolist(), strict=True):
        leaf = features[7 + int(features[0, :8].argmax())]
        assert int(leaf[:8].argmax()) == int(features[0, :8].argmax())
        assert int(leaf[8:].argmax()) == target
        assert sorted(features[7:, 8:].argmax(-1).tolist()) == [*range(8)]
    assert arms["tree"].num_edges == 15 + 14
    assert ga.analysis.receptive_field([arms["tree"]] * 3, targets=[0]).sizes[-1].tolist() == [15]
    assert [graph.num_edges for graph in arms["tree, last layer full"]] == [29, 29, 29, 225]
    narrow = over_squashing.study(quick=True)
    assert [*narrow.comparisons[0].kinds] == ["tree", "tree, last layer full", "full"]
    assert narrow.claims == []


@pytest.mark.slow
def test_ways_to_the_root_foretell_its_gradient():
    """In their order; of one graph in all layers also in size. No number is fitted."""
    model, trees = Model(layers=4, width=32, heads=4, hidden=64), over_squashing.data(3, 64, 1)
    told = []
    for arm in over_squashing.arms(3).values():
        layers = over_squashing.stack(arm, 4)
        told.append((over_squashing.ways(layers), over_squashing.gradient(layers, model, trees)))
    ways, shares = zip(*told, strict=True)
    assert sorted(ways) == [*ways]
    assert sorted(shares) == [*shares]
    assert shares[::2] == pytest.approx(ways[::2], abs=0.06)


def test_text_asks_for_the_next_character_of_modules_not_seen():
    data = text.data()
    assert torch.equal(data.targets[:, :-1], data.inputs[:, 1:])
    stretch = text.stretches("textwrap")
    told = "".join(chr(31 + c) if c not in (0, 96) else "\n" for c in stretch[0].tolist())
    assert told == Path(text.os.__file__).with_name("textwrap.py").read_text("utf-8")[:65]
    train, test = data.split(0, None)
    held = {tuple(row) for row in data.inputs[test].tolist()}
    assert tuple(stretch[3, :-1].tolist()) in held
    assert len(held & {tuple(row) for row in data.inputs[train].tolist()}) < 5
