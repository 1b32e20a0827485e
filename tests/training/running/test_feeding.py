"""Feeding: workers make the batches of a training and their plans; the numbers stay the same."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file
from shape_folders import QUICK, labelled_points, two_classes

import graphattn as ga
from graphattn.errors import OptionError, ProcessError
from graphattn.graph.modes import Memo
from graphattn.kernels.cuda import row_work
from graphattn.plans.cache import CPU
from graphattn.plans.grouped import by_source, by_target
from graphattn.plans.transfer import unpack
from graphattn.shapes import Shape
from graphattn.training.models.named import MODELS, build
from graphattn.training.options import Schedule
from graphattn.training.reading import data as training_data
from graphattn.training.reading.data import Prepared
from graphattn.training.running import feeding, loop
from graphattn.training.running.feeding import Feed, Ordered
from graphattn.training.running.loop import answers_of
from graphattn.training.tasks import TASKS

ROOT = Path(__file__).parents[3]
#: Most launches of a step of each model; an optimizer with one launch for all parameters adds one.
LAUNCHES = {"point-transformer-v3": 850, "unet": 1850, "encode-process-decode": 950}
LAYOUTS = (by_target, by_source)


class Clouds:
    """Ellipsoids of points in memory, as a folder has them."""

    def __init__(self, sizes):
        draw = torch.Generator().manual_seed(1)
        self.pos = []
        for size in sizes:
            pos = torch.nn.functional.normalize(torch.randn(size, 3, generator=draw), dim=1)
            self.pos.append(pos * torch.rand(3, generator=draw).add(0.5))
        self.sizes = torch.tensor(sizes)
        self.labels = [(pos[:, 2] > 0).long() for pos in self.pos]

    def __len__(self):
        return len(self.pos)

    def __getitem__(self, number):
        return Shape(pos=self.pos[number].clone(), y=self.labels[number])

    def name(self, number):
        return f"{number}.ply"


def fed(name, workers, sizes=(61, 67, 71, 73, 79), points=149, device="cpu"):
    """A model of points and its batches."""
    preset = MODELS[name]
    data = Prepared(Clouds(sizes), list(range(len(sizes))), preset.of_nodes, ("rotation",))
    batches = data.batches(
        points, shuffle=True, seed=3, loader=lambda order: Feed(data, order, workers, device)
    )
    torch.manual_seed(0)
    return build(name, {}, data[0].x.shape[1], 2, "node"), batches


def underived(monkeypatch):
    """The keys of what is derived of graphs from now on in this process."""
    keys = []

    def spy(memo, key, value):
        is_choice = isinstance(value, Memo) or (
            isinstance(key, tuple) and not (callable(key[0]) or isinstance(key[0], str))
        )
        if not is_choice:
            keys.append(key)
        dict.__setitem__(memo, key, value)

    monkeypatch.setattr(Memo, "__setitem__", spy, raising=False)
    return keys


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["point-transformer-v3", pytest.param("unet", marks=pytest.mark.slow)]
)
def test_a_worker_gives_the_same_bits_as_none(name):
    steps = []
    for workers in (0, 1):
        model, batches = fed(name, workers)
        numbers = []
        for _ in range(2):
            for x, levels, y in batches:
                model.zero_grad()
                output = model(x, levels)
                torch.nn.functional.cross_entropy(output, y).backward()
                numbers.append([x, y, output, *(p.grad for p in model.parameters())])
        steps.append(numbers)
    alone, with_worker = steps
    assert len(alone) == len(with_worker) >= 4
    for found, wanted in zip(with_worker, alone, strict=True):
        for a, b in zip(found, wanted, strict=True):
            assert (a is None and b is None) or torch.equal(a, b)


def test_a_worker_that_is_killed_is_told_with_what_to_try():
    _, batches = fed("unet", 1, sizes=(61,) * 40, points=61)
    made = iter(batches)
    next(made)
    next(made)
    for worker in mp.active_children():
        worker.kill()
        worker.join()
    with pytest.raises(ProcessError, match=r"workers was killed.*resume"):
        list(made)


@pytest.mark.parametrize(
    "name", [pytest.param("point-transformer-v3", marks=pytest.mark.slow), "unet"]
)
def test_the_training_process_plans_nothing_after_the_first_batch(name, monkeypatch):
    model, batches = fed(name, 1, sizes=(61,) * 9, points=61)
    sent = iter(batches)
    x, levels, _ = next(sent)
    model(x, levels).sum().backward()
    next(sent)  # its plans are known, those of further choices are not
    keys = underived(monkeypatch)
    for x, levels, _ in sent:
        model(x, levels).sum().backward()
    assert set(keys) <= {"first call of the edge kernels"}


def test_a_validation_part_is_packed_and_planned_once(monkeypatch):
    model, batches = fed("unet", 0)
    data = batches.dataset
    how = Schedule(epochs=1, points=149)
    task = TASKS["segment"]("node", ("low", "high"))
    first, _ = [answers_of(model, task, data, how)[0] for _ in range(2)]  # further choices
    keys = underived(monkeypatch)
    monkeypatch.setattr(training_data, "joined", None)
    again = answers_of(model, task, data, how)[0]
    assert [len(one) for one in again] == [61, 67, 71, 73, 79]
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert keys == []


def test_a_validation_part_without_room_is_packed_anew():
    data = fed("unet", 0)[1].dataset
    data.keep_nothing()
    (first, *_), (again, *_) = [list(data.still(149, "cpu")) for _ in range(2)]
    assert first.levels is not again.levels
    assert torch.equal(first.x, again.x)


def ordered(making, plans):
    return making[Ordered(list(range(2)), plans)]


def test_for_cuda_schedules_travel_with_their_layouts_and_end_with_them(monkeypatch):
    monkeypatch.setattr(feeding, "_memory", lambda size: torch.empty(size, dtype=torch.uint8))
    _, batches = fed("unet", 0)
    cuda = torch.device("cuda", 0)
    making = feeding._Making(batches.dataset, 0, cuda)
    graphs = feeding._graphs(next(iter(batches)).levels)
    plans = (frozenset({(by_target, cuda), (by_source, cuda)}),) * len(graphs)
    made = ordered(making, plans)
    blocks = made.blocks(CPU)
    blocks["apart"] = blocks["apart"].clone()  # on CUDA, each block is copied
    batch, schedules = unpack(made.data, blocks)
    assert len(schedules) == 2 * len(graphs)
    row_work._live(row_work._schedules)
    before = len(row_work._schedules)
    for schedule in schedules:
        row_work.keep(*schedule)
    held = len(row_work._schedules)
    del schedule, schedules
    layouts = [g._memo[plan, cuda] for g in feeding._graphs(batch.levels) for plan in LAYOUTS]
    taken = [flat(row_work.schedule(layout.ptr, layout.order)) for layout in layouts]
    assert len(row_work._schedules) == held, "nothing is cut again"
    for found, layout in zip(taken, layouts, strict=True):
        assert all(map(torch.equal, found, flat(again(layout))))
    del batch, graphs, layouts, layout, taken, found, made, blocks
    row_work._live(row_work._schedules)
    assert len(row_work._schedules) == before


def again(layout):
    """The schedule of a copy of a layout."""
    return row_work.schedule(layout.ptr.clone(), layout.order.clone())


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [x for part in value for x in flat(part)]
    return []


def test_a_batch_that_shared_memory_cannot_hold_is_refused(monkeypatch):
    class Full:
        f_bavail = 3
        f_frsize = 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    monkeypatch.setattr(feeding, "get_worker_info", lambda: "a worker")
    with pytest.raises(OptionError, match=r"workers must share .* 20,000 bytes, and 12,288 are"):
        feeding._memory(20_000)


@pytest.mark.slow
def test_losses_are_read_every_n_steps(classes, tmp_path, monkeypatch):
    reads = []
    read = loop.TrainingState._read

    def spy(training, epoch):
        reads.append(len(training.unread))
        read(training, epoch)

    monkeypatch.setattr(loop.TrainingState, "_read", spy)
    monkeypatch.setattr(loop, "READ", 3)
    how = {**QUICK, "epochs": 2, "points": 60, "seconds": 1e9}
    ga.training.train(classes, tmp_path / "run", **how)
    steps = sum(reads) // 2
    assert steps > 4
    assert reads == ([3] * (steps // 3) + [steps % 3]) * 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [two_classes, labelled_points])
def test_a_run_with_workers_has_the_same_parameters_and_log(make, tmp_path, no_page):
    folder = make(tmp_path / "shapes")
    how = {"epochs": 3, "points": 60, "control": False, "seconds": 0.0}
    runs = []
    gc.disable()  # workers end with the training, not when Python looks for cycles
    for workers in (0, 2):
        run = tmp_path / str(workers)
        ga.training.train(folder, run, workers=workers, **how)
        runs.append((load_file(run / "model.safetensors"), (run / "log.jsonl").read_bytes()))
    gc.enable()
    assert not mp.active_children()
    (alone, log), (with_workers, same_log) = runs
    assert log == same_log
    assert all(torch.equal(alone[name], with_workers[name]) for name in alone)


@pytest.mark.slow
def test_a_step_on_cuda_waits_for_nothing(tmp_path):
    """On the device that is not there; the loop reads losses every 16 steps."""
    script = ROOT / "tests" / "gpu" / "launches.py"
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "gpu")))
    env = {**os.environ, "NO_DEVICE": str(tmp_path), "PYTHONPATH": paths}
    words = [sys.executable, str(script), *LAUNCHES]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=ROOT)
    if "g++" in done.stderr:
        pytest.skip(f"no compiler for torch's headers: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["model"] for step in steps] == list(LAUNCHES)
    assert [step["waits"] for step in steps] == [0] * len(steps)
    assert all(step["launches"] <= LAUNCHES[step["model"]] for step in steps), steps
