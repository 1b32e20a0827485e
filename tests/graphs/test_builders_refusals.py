"""What no builder takes: sizes beyond int64, tensors as flags, tensors that hold no numbers one by one."""

import numpy as np
import pytest
import torch

import graphattn.graphs as g
from graphattn.errors import GraphError

F, P = torch.tensor([[0, 1, 2], [2, 1, 3]]), torch.rand(7, 3)


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: g.cross(5, 2**63), "num_sources"),
        (lambda: g.global_tokens(10**30, (0,)), "num_nodes"),
        (lambda: g.full(10**5000), "num_nodes"),
        (lambda: g.grid_neighbourhood(2**70, 3), "size"),
        (lambda: g.grid_neighbourhood((2**40, 2**40), 3), "size"),
        (lambda: g.cell_partition((2**62, 2), 1), "size"),
        (lambda: g.mesh_report(F, num_vertices=2**70), "num_vertices"),
        (lambda: g.mesh_vertices(F, 2**63), "num_vertices"),
    ],
)
def test_sizes_fit_in_int64(build, argument):
    with pytest.raises(GraphError, match=rf"^{argument} must .*2\*\*63.*, got"):
        build()
    assert g.full(2**63 - 1).num_targets == 2**63 - 1


FLAGS = {
    "window causal": ("causal", lambda flag: g.sliding_window(5, 3, causal=flag)),
    "documents causal": ("causal", lambda flag: g.documents(lengths=(2, 3), causal=flag)),
    "grid causal": ("causal", lambda flag: g.grid_neighbourhood((5,), 3, causal=flag)),
    "grid clamp": ("clamp", lambda flag: g.grid_neighbourhood((5,), 3, clamp=flag)),
    "pad": ("pad", lambda flag: g.cell_partition((5,), 3, pad=flag)),
    "knn clamp": ("clamp", lambda flag: g.knn(P, 2, clamp=flag)),
    "knn self": ("include_self", lambda flag: g.knn(P, 2, include_self=flag)),
    "radius self": ("include_self", lambda flag: g.radius(P, 2.0, include_self=flag)),
    "vertices": ("self_loops", lambda flag: g.mesh_vertices(F, self_loops=flag)),
    "faces": ("self_loops", lambda flag: g.mesh_faces(F, self_loops=flag)),
}
NO_FLAGS = [torch.tensor([True, False]), torch.tensor(True), np.array([True, False]), "no", 1, None]


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("given", NO_FLAGS, ids=lambda given: type(given).__name__)
def test_flags_are_true_or_false(name, given):
    argument, build = FLAGS[name]
    with pytest.raises(GraphError, match=f"^{argument} must be True or False"):
        build(given)


def test_numpys_bools_are_flags():
    assert g.sliding_window(5, 3, causal=np.bool_(False)).name == "sliding_window(5, 3, causal=False)"


@pytest.mark.parametrize("given", [torch.tensor([1, 2]), np.array(["end", "start"]), ["end"], None])
def test_words_are_words(given):
    for argument, build in (
        ("align", lambda: g.causal(3, 5, align=given)),
        ("overflow", lambda: g.radius(P, 1.0, max_neighbours=2, overflow=given)),
        ("share", lambda: g.mesh_faces(F, share=given)),
    ):
        with pytest.raises(GraphError, match=f'^{argument} must be "'):
            build()


@pytest.mark.parametrize(
    ("argument", "tensor", "build"),
    [
        ("faces", F, g.mesh_vertices),
        ("faces", F, g.mesh_faces),
        ("pos", P, lambda pos: g.knn(pos, 2)),
        ("queries", P, lambda queries: g.radius(P, 2.0, queries=queries)),
        ("batch", torch.zeros(7).long(), lambda batch: g.knn(P, 2, batch=batch)),
        ("ids", torch.tensor([0, 1, 1]), g.documents),
    ],
)
def test_sparse_tensors_and_tensors_without_numbers_are_refused(argument, tensor, build):
    build(tensor)
    with pytest.raises(GraphError, match=rf"^{argument} must be a strided .* torch.sparse_coo; pass {argument}.to_d"):
        build(tensor.to_sparse())
    with pytest.raises(GraphError, match=f"^{argument} is on meta, whose tensors hold no numbers"):
        build(tensor.to("meta"))


@pytest.mark.parametrize("faces", [b"4", bytearray(b"444"), "012"])
def test_text_is_no_mesh(faces):
    with pytest.raises(GraphError, match=r"^faces must be a Tensor .* tuples of vertex numbers, got a (str|byte)"):
        g.mesh_faces(faces)
