"""Batches by a budget of points, and augmentations that carry normals and faces along."""

import os
import re
import signal

import pytest
import torch
import torch.multiprocessing as mp
from torch_geometric import transforms
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter

import graphattn as ga
from graphattn.errors import GraphAttnError, OptionError
from graphattn.shapes import (
    AddEdges,
    KeepFarthest,
    PointBatches,
    RandomDrop,
    RandomMirror,
    RandomRotation,
    RandomStretch,
    ShapeFolder,
)


@pytest.fixture
def folder(tmp_path):
    for number in range(23):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        pos = torch.rand(11 + 7 * (number % 5), 3)
        ga.save(Data(pos=pos, normal=pos), tmp_path / "ab"[number % 2] / f"{number}.ply")
    return ShapeFolder(
        tmp_path,
        transform=transforms.Compose(
            [RandomRotation(), transforms.RandomJitter(0.1), RandomDrop(0.3)]
        ),
    )


def told(batch):
    return batch.pos.double().sum().item(), batch.ptr.tolist(), batch.y.tolist()


def test_every_shape_comes_once_and_no_batch_is_over_the_budget(folder):
    batches = PointBatches(folder.split()["train"], 97, seed=5)
    plan = batches.plan()
    assert (
        sorted(int(number) for batch in plan for number in batch) == folder.split()["train"].indices
    )
    assert all(int(folder.sizes[batch].sum()) <= 97 for batch in plan)
    assert len(plan) < len(folder) / 2
    first = list(batches)
    assert all(isinstance(batch, Batch) for batch in first)
    assert len(first) == len(plan)
    assert [told(batch) for batch in first] != [told(batch) for batch in batches], (
        "another epoch, another order"
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_training_goes_on_with_the_same_numbers(folder, num_workers):
    """What is drawn depends on the seed, the epoch and the shape alone."""
    batches = PointBatches(folder, 97, seed=5)
    whole = [told(batch) for _ in range(2) for batch in batches]
    again, seen = PointBatches(folder, 97, seed=5), []
    torch.manual_seed(1)
    for batch in again:
        seen.append(told(batch))
        if len(seen) == 2:
            state = again.state_dict()
            break
    rest = PointBatches(folder, 97, seed=5, num_workers=num_workers)
    rest.load_state_dict(state)
    seen += [told(batch) for _ in range(2 - num_workers) for batch in rest]
    assert seen == whole[: len(seen)]
    assert len(seen) > 5
    with pytest.raises(GraphAttnError, match="same shapes, points"):
        PointBatches(folder, 98, seed=5).load_state_dict(state)


def test_every_iterator_begins_at_the_first_batch(folder):
    batches = PointBatches(folder, 97, seed=5)
    numbers = len(folder)
    next(iter(batches))
    assert sum(len(batch) for batch in batches) == numbers
    state = [batches.state_dict() for _ in batches][-1]
    rest = PointBatches(folder, 97, seed=5)
    rest.load_state_dict(state)
    assert sum(len(batch) for batch in rest) == numbers, (
        "no empty epoch after the last batch of one"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"points": 38}, r"points must be at least 39, those of a/\d+\.ply"),
        ({"points": 0}, "points must be"),
        ({"points": 99, "sizes": [1, 2]}, "sizes must be 23 numbers"),
        ({"points": 99, "shuffle": 1}, "shuffle"),
    ],
)
def test_a_budget_that_cannot_be(folder, options, said):
    with pytest.raises(GraphAttnError, match=said):
        PointBatches(folder, **options)


def ball():
    """A sphere, whose normals are its positions."""
    import trimesh

    mesh = trimesh.creation.icosphere(1)
    pos = torch.tensor(mesh.vertices, dtype=torch.float32)
    return Data(
        pos=pos,
        normal=pos.clone(),
        face=torch.tensor(mesh.faces.T),
        y=torch.arange(42),
        face_id=torch.arange(80),
    )


def outward(data):
    """The mean of the cosines of normals and of the areas of the faces around each point."""
    a, b, c = data.pos[data.face]
    area = torch.linalg.cross(b - a, c - a).repeat(3, 1)
    around = scatter(area, data.face.reshape(-1), dim_size=len(data.pos))
    return torch.cosine_similarity(around, data.normal).min()


@pytest.mark.parametrize(
    "change",
    [RandomRotation(), RandomRotation(axis=2), RandomStretch(0.5, 2), RandomMirror(1, p=1)],
)
def test_normals_go_along(change):
    torch.manual_seed(2)
    data = change(ball())
    assert outward(data) > 0.98
    assert not torch.allclose(data.pos, ball().pos)
    torch.testing.assert_close(data.normal.norm(dim=1), torch.ones(42))
    if not isinstance(change, RandomStretch):
        torch.testing.assert_close(
            torch.cdist(data.pos, data.pos), torch.cdist(ball().pos, ball().pos), atol=1e-3, rtol=0
        )


def test_edges_and_far_points_are_transforms_and_need_no_pyg_lib():
    far, near = KeepFarthest(ratio=0.5), AddEdges(ga.graphs.knn(..., k=4))
    steps = transforms.Compose([far, near, transforms.Distance()])
    data, kept = steps(ball()), ga.shapes.farthest_points(ball().pos, ratio=0.5, start="outermost")
    assert torch.equal(data.normal, ball().normal[kept])
    assert {"face", "face_id"}.isdisjoint(data.keys())
    assert torch.equal(data.edge_index, ga.graphs.knn(ball().pos[kept], 4).edge_index)
    assert data.edge_attr.shape == (21 * 4, 1)
    lines = Data(pos=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    two = AddEdges(ga.graphs.mesh_vertices(..., hops=2))(lines).edge_index
    assert set(map(tuple, two.T.tolist())) == {
        (a, b) for a in range(4) for b in range(4) if 1 <= abs(a - b) <= 2
    }
    mesh = AddEdges(ga.graphs.mesh_vertices(...))(ball())
    assert torch.equal(mesh.edge_index, ga.graphs.mesh_vertices(ball().face.T).edge_index)
    both = AddEdges(ga.graphs.radius(..., r=0.5))(Batch.from_data_list([ball(), ball()]))
    assert bool((both.batch[both.edge_index[0]] == both.batch[both.edge_index[1]]).all())
    for wrong, words in (
        (lambda: AddEdges(ga.graphs.causal(5)), "recipe must be open in its positions"),
        (lambda: KeepFarthest(), "one of the two"),
        (lambda: KeepFarthest(5)(data), "choose points before its edges"),
        (
            lambda: KeepFarthest(5)(Batch.from_data_list([ball(), ball()])),
            "of each shape before they are joined",
        ),
    ):
        with pytest.raises(GraphAttnError, match=words):
            wrong()


def test_integers_are_not_turned():
    """A matrix in their type would be truncated."""
    with pytest.raises(
        GraphAttnError, match=r"pos must be floats, got torch.int64; data.pos.float\(\) first"
    ):
        RandomRotation()(Data(pos=torch.eye(3).long()))


def test_pyg_leaves_normals_and_faces_behind():
    torch.manual_seed(0)
    assert outward(transforms.RandomRotate((90, 90), axis=2)(ball())) < 0.5
    assert outward(transforms.RandomFlip(1, p=1)(ball())) < 0.5
    assert int(transforms.FixedPoints(20, replace=False)(ball()).face.max()) >= 20


def test_rotations_are_drawn_from_all_alike():
    """The mean of many is 0, and so is that of their angles' cosines: trace = 1 + 2 cos."""
    torch.manual_seed(0)
    many = torch.stack([RandomRotation().matrix() for _ in range(1500)])
    assert many.mean(0).abs().max() < 0.07
    assert (torch.linalg.det(many) - 1).abs().max() < 1e-12
    about_z = torch.stack([RandomRotation(axis=2).matrix() for _ in range(50)])
    assert torch.equal(
        about_z[:, 2], torch.tensor([[0.0, 0, 1]], dtype=torch.float64).expand(50, 3)
    )


def test_points_are_dropped_with_their_faces():
    torch.manual_seed(1)
    data = RandomDrop(0.5)(ball())
    assert 5 < len(data.pos) < 42
    assert torch.equal(data.pos, ball().pos[data.y])
    assert torch.equal(data.pos[data.face], ball().pos[ball().face[:, data.face_id]])
    assert 0 < len(data.face_id) < 80
    assert len(RandomDrop(1.0)(Data(pos=torch.rand(1, 3))).pos) == 1
    with pytest.raises(GraphAttnError, match="before they are joined"):
        RandomDrop()(Batch.from_data_list([ball(), ball()]))


class Interrupted(torch.utils.data.Dataset):
    """Shapes of 3 points, whose process gets Ctrl-C at each."""

    sizes = torch.full((4,), 3)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGINT)
        return Data(pos=torch.full((3, 3), float(index)))


@pytest.mark.skipif(
    not hasattr(signal, "pthread_sigmask"), reason="Windows has no masks of signals"
)
def test_workers_leave_an_interrupt_to_their_parent():
    batches = PointBatches(Interrupted(), points=6, shuffle=False, num_workers=1)
    assert [batch.pos[::3, 0].tolist() for batch in batches] == [[0.0, 1.0], [2.0, 3.0]]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Counted(torch.utils.data.Dataset):
    """Shapes that count, in all processes, how often each was made."""

    def __init__(self, number):
        self.sizes = torch.full((number,), 5)
        self.made = torch.zeros(number, dtype=torch.int64).share_memory_()
        self.cached = {}

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, number):
        number = int(number)
        if number not in self.cached:
            self.made[number] += 1
            self.cached[number] = Data(pos=torch.full((5, 3), float(number)))
        return self.cached[number]


def test_what_a_worker_caches_serves_later_epochs():
    data = Counted(7)
    batches = PointBatches(data, 10, num_workers=1)
    epochs = [torch.cat([batch.pos[::5, 0] for batch in batches]).tolist() for _ in range(3)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert data.made.tolist() == [1] * 7


def test_an_epoch_that_is_left_does_not_reach_the_next_one():
    alone, with_worker = (PointBatches(Counted(23), 10, num_workers=n) for n in (0, 1))
    next(iter(alone)), next(iter(with_worker))
    assert [batch.pos.tolist() for batch in with_worker] == [batch.pos.tolist() for batch in alone]


def test_workers_end_with_their_batches():
    before = set(mp.active_children())
    batches = PointBatches(Counted(7), 10, num_workers=1)
    list(batches)
    (worker,) = set(mp.active_children()) - before
    del batches
    worker.join(10)
    assert worker.exitcode is not None


def test_shapes_are_drawn_about_as_often_as_their_chances_say():
    shapes = [ga.shapes.Shape(pos=torch.rand(3, 3)) for _ in range(7)]
    chances = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 4.0])
    batches = PointBatches(shapes, 6, sizes=[3] * 7, seed=11, chances=chances)
    counts = torch.zeros(7)
    for epoch in range(40):
        batches.epoch = epoch
        numbers = [number for batch in batches.plan() for number in batch]
        assert len(numbers) == 7
        assert numbers.count(6) == 4
        counts += torch.bincount(torch.tensor(numbers), minlength=7)
    torch.testing.assert_close(counts / 40, chances, rtol=0.4, atol=0)
    with pytest.raises(OptionError, match="state must be of the same shapes"):
        PointBatches(shapes, 6, sizes=[3] * 7, seed=11).load_state_dict(batches.state_dict())


@pytest.mark.parametrize("chances", [[1.0] * 5, [1.0, 1.0, 0.0]])
def test_chances_are_one_number_above_0_for_each_shape(chances):
    words = re.escape(f"chances must be 3 finite numbers above 0, got {chances}")
    with pytest.raises(OptionError, match=words):
        PointBatches(list(range(3)), 6, sizes=[3] * 3, chances=torch.tensor(chances))
