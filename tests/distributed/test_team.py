"""Training in several processes: the losses of one, one log and one result, and the same bits after
any end.
"""

import json
import random

import pytest
import ranks
import torch
from shape_folders import labelled_points, measured_meshes, two_classes

import graphattn as ga
from graphattn.distributed.exchange import Processes
from graphattn.errors import OptionError, ProcessError
from graphattn.training.models.named import MODELS
from graphattn.training.running.team import Team

HOW = {
    "epochs": 3,
    "seed": 3,
    "points": 90,
    "seconds": 0.0,  # a state after every batch
    "control": ["perceptron"],
    "augment": ["rotation"],
    "model_options": {"widths": [8, 8], "num_heads": 2, "dropout": 0.0},
}
FILES = (
    "model.safetensors",
    "checkpoint.safetensors",
    "log.jsonl",
    "result.json",
    "perceptron/model.safetensors",
)


#: A process that has trained, so that those forked from it have read everything.
FIRST = """import pathlib, tempfile, torch, shape_folders, graphattn as ga
torch.set_num_threads(1)
from graphattn.training import fit
fit.save_report = lambda *args: None  # it draws
folder = pathlib.Path(tempfile.mkdtemp())
ga.training.train(shape_folders.two_classes(folder / "shapes"), folder / "run", **shape_folders.QUICK)"""


def trained(folder, *runs, **options):
    """The lines of trainings (processes, folder of the run, and the part of 1 where the first
    process is killed).
    """
    words = [
        (str(folder), str(out), json.dumps(HOW | options), str(*end or (2.0,)))
        for _, out, *end in runs
    ]
    each = [("team.py", run[0], *of_run) for run, of_run in zip(runs, words, strict=True)]
    return ranks.launches(each, FIRST)


def lines(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]


def contents(run):
    return {name: (run / name).read_bytes() for name in FILES if (run / name).is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize(("made", "levels"), [(two_classes, 2), (labelled_points, 3)])
def test_three_processes_learn_what_one_does(made, levels, shard, tmp_path):
    folder, small = made(tmp_path / "shapes"), HOW["model_options"] | {"widths": [8] * levels}
    ga.training.train(folder, tmp_path / "one", **HOW | {"model_options": small})
    (printed,) = trained(folder, (3, tmp_path / "three"), model_options=small, shard=shard)
    assert all(len(of_rank) == 1 + (rank == 0) for rank, of_rank in enumerate(printed)), printed
    one, three = lines(tmp_path / "one"), lines(tmp_path / "three")
    assert len(one) == len(three) == 3
    for a, b in zip(one, three, strict=True):
        assert (a["loss"], a["val_loss"]) == pytest.approx((b["loss"], b["val_loss"]), rel=2e-3)
    assert one[0]["loss"] == pytest.approx(three[0]["loss"], rel=1e-4)
    assert one[0]["loss"] != one[1]["loss"]


@pytest.mark.parametrize(
    "kills", [2, *(pytest.param(many, marks=pytest.mark.slow) for many in (5, 20))]
)
def test_a_run_that_was_killed_has_the_bits_of_one_that_was_not(kills, tmp_path):
    folder, draw = two_classes(tmp_path / "shapes"), random.Random(kills)
    how = {"model_options": HOW["model_options"] | {"dropout": 0.3}}
    if kills == 2:
        how |= {"epochs": 2, "control": []}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ends = sorted(draw.uniform(0, 0.99) for _ in range(kills))
    runs = (2, whole), *((2, killed, end) for end in ends), (2, killed)
    printed = trained(folder, *runs, **how)
    assert [not of_first for of_first, _ in printed] == [False, *[True] * kills, False], printed
    assert contents(killed) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_a_run_goes_on_in_another_number_of_processes(shard, tmp_path):
    folder = two_classes(tmp_path / "shapes")
    printed = trained(folder, (2, tmp_path / "run", 0.5), (3, tmp_path / "run"), shard=shard)
    assert [bool(of_run[0]) for of_run in printed] == [False, True], printed
    assert len(lines(tmp_path / "run")) == 3


def test_the_shares_of_a_batch_are_its_shapes():
    shapes = [ga.shapes.Shape(pos=torch.full((size, 3), float(size))) for size in (5, 7, 4, 6, 9)]
    named = {"sizes": [5, 7, 4, 6, 9], "seed": 1}
    whole = [
        sorted(batch.pos[:, 0].unique().tolist())
        for batch in ga.shapes.PointBatches(shapes, 17, **named)
    ]
    shares = [
        list(ga.shapes.PointBatches(shapes, 17, share=(rank, 3), **named)) for rank in range(3)
    ]
    two = [len(batch) for batch in whole].index(2)
    # the third process has the first shape of two
    assert torch.equal(shares[2][two].pos, shares[0][two].pos)
    assert not torch.equal(shares[1][two].pos, shares[0][two].pos)
    for number, batch in enumerate(whole):
        own = torch.cat([share[number].pos[:, 0].unique() for share in shares[: len(batch)]])
        assert sorted(own.tolist()) == batch


def test_gradients_of_shares_are_those_of_the_batch(monkeypatch):
    """Two shares of other sizes, one of them empty in the end, add up as one batch does."""
    torch.manual_seed(0)
    model, x, y = torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.randn(7, 3), torch.randn(7)
    ((model(x).sum(1) - y) ** 2).mean().backward()
    wanted = model[0].weight.grad.clone()
    sent, shares = [], (slice(0, 5), slice(5, 7), slice(0, 0))
    monkeypatch.setattr(Processes, "sum", lambda self, every: (sent.append(every), sum(sent))[1])
    for share in shares:
        model.zero_grad()
        loss = (
            ((model(x[share]).sum(1) - y[share]) ** 2).mean() if len(x[share]) else torch.zeros(())
        )
        mass = torch.tensor(float(len(x[share])))
        if mass:
            (loss * mass).backward()
        total = Team().add_up(model, loss, mass)
    assert torch.allclose(model[0].weight.grad, wanted, atol=1e-6)
    assert wanted.abs().max() > 0.1
    assert float(total) == pytest.approx(
        float(((model(x).sum(1) - y) ** 2).mean().detach()), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(set(MODELS) - {"pct", "perceptron", "forest", "best", "curve", "best-curve"})
)
def test_a_model_learns_from_points_that_processes_share(name, tmp_path):
    mesh = name.startswith("mesh")
    folder = (measured_meshes if mesh else labelled_points)(tmp_path / "shapes")
    how = {"model": name, "model_options": {}, "epochs": 1, "control": [], "points": 400}
    ga.training.train(folder, tmp_path / "one", **HOW | how)
    (printed,) = trained(folder, (2, tmp_path / "two"), **how, shard=True)
    (one,), (two,) = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert (one["loss"], one["val_loss"]) == pytest.approx(
        (two["loss"], two["val_loss"]), rel=1e-3
    ), printed


@pytest.mark.parametrize("name", ["pct", "best"])
def test_a_model_that_reads_whole_clouds_takes_no_points_of_its_own(name, tmp_path):
    words = f"shard is for models that read neighbours alone, got model='{name}'"
    with pytest.raises(OptionError, match=words):
        ga.training.train(
            labelled_points(tmp_path / "shapes"), tmp_path / "run", model=name, shard=True
        )


def test_processes_of_other_files_are_refused(monkeypatch):
    team = Team()
    team.number = 2
    monkeypatch.setattr(
        Processes, "gathered", lambda self, fact: [fact, (*fact[:2], "another", *fact[3:])]
    )
    with pytest.raises(
        ProcessError, match="process 1 has other files, parameters or versions than process 0"
    ):
        team.agree("key", torch.nn.Linear(2, 2), {"epoch": 0})
