"""``EquivariantAttention``: its dense twin, its symmetries, and forces of an energy made with it."""

import math

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn.errors import GraphError, OptionError, ShapeError

N, WIDTH, HEADS, VECTORS, REACH = 11, 6, 3, 9, 1.9
CELL = torch.tensor([[3.1, 0.2, 0.0], [-0.4, 2.9, 0.3], [0.1, 0.5, 3.3]], dtype=torch.float64)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(**options):
    torch.manual_seed(0)
    options = {"cutoff": REACH, "num_radial": 5, **options}
    return ga.nn.EquivariantAttention(WIDTH, HEADS, VECTORS, **options).double()


def dense(layer, x, mask, pos, v, attr=None):
    """The same on all pairs (T, S), without a cell: sums over a dense axis."""
    d = pos[None] - pos[:, None]  # (T, S, d): from target to source
    length = d.pow(2).sum(-1).add(torch.eye(len(pos), dtype=pos.dtype)).sqrt()
    length = length - torch.eye(len(pos), dtype=pos.dtype)
    centres = torch.linspace(0, layer.cutoff, 5).double()  # made in float32, as parameters are
    e = torch.exp(-(((length[..., None] - centres) * 4 / layer.cutoff) ** 2))
    if attr is not None:
        e = torch.cat((e, attr), -1)
    terms = e @ layer.edge_proj.weight.T + layer.edge_proj.bias
    q, k = (p(x).reshape(len(x), HEADS, -1).transpose(0, 1) for p in (layer.q_proj, layer.k_proj))
    score = q @ k.mT / math.sqrt(WIDTH / HEADS) + terms[..., :HEADS].permute(2, 0, 1)
    if layer.normalize == "sigmoid":
        weight = torch.sigmoid(score) * mask
    else:
        weight = torch.softmax(score.masked_fill(~mask, -torch.inf), -1).nan_to_num()
    far = length >= layer.cutoff
    weight = weight * (torch.cos(math.pi * length / layer.cutoff) + 1).masked_fill(far, 0) / 2
    value = layer.v_proj(x)[None] * terms[..., HEADS:]
    m, g, r = value.split((WIDTH, VECTORS, VECTORS), -1)
    by_channel = [
        weight.permute(1, 2, 0).repeat_interleave(size // HEADS, -1) for size in (WIDTH, VECTORS)
    ]
    o = (by_channel[0] * m).sum(1)
    unit = d / torch.where(length == 0, 1.0, length)[..., None]
    u = torch.einsum("tsc,tsc,scd->tcd", by_channel[1], g, v)
    u = u + torch.einsum("tsc,tsc,tsd->tcd", by_channel[1], r, unit)
    a, b, c = (torch.einsum("ij,tjd->tid", w, u) for w in layer.mix_proj.weight.chunk(3))
    return layer.out_proj(torch.cat((o, (a * b).sum(-1)), -1)), c


@pytest.mark.parametrize("normalize", ["sigmoid", "softmax"])
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_it_equals_its_dense_twin(normalize, axes, edge_dim):
    pos, x, v = numbers(N, axes), numbers(N, WIDTH, seed=1), numbers(N, VECTORS, axes, seed=2)
    module = layer(normalize=normalize, edge_dim=edge_dim)
    graph = ga.graphs.knn(pos, 4) | ga.graphs.circulant(N, (0, 1))
    attr = None
    of_edges = None
    if edge_dim:
        attr = numbers(N, N, edge_dim, seed=3)
        of_edges = attr[graph.target, graph.source]
    leaves = [pos, x, v, *module.parameters()]
    for leaf in leaves:
        leaf.requires_grad_()
    found = module(x, graph, pos, v, edge_attr=of_edges)
    wanted = dense(module, x, graph.mask(), pos, v, attr)
    grads = []
    for scalars, vectors in (found, wanted):
        loss = (scalars * numbers(N, WIDTH, seed=4)).sum() + (vectors**2).sum()
        grads.append(torch.autograd.grad(loss, leaves))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
    for one, other in zip(*grads, strict=True):
        assert other.abs().max() > 0
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-11)


class Stack(nn.Module):
    """Two layers, and the energy of each atom."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Embedding(3, WIDTH)
        self.layers = nn.ModuleList([layer(), layer()])
        self.leave = nn.Linear(WIDTH, 1)

    def forward(self, z, graph, pos):
        x = self.enter(z)
        v = pos.new_zeros(len(pos), VECTORS, pos.shape[1])
        for module in self.layers:
            more_x, more_v = module(torch.tanh(x), graph, pos, v)
            x, v = x + more_x, v + more_v
        energy = self.leave(torch.tanh(x))[:, 0]
        return {"energy": energy.sum(), "atoms": x, "vectors": v}


def stack():
    torch.manual_seed(1)
    return Stack().double()


def forces(model, z, graph, pos):
    pos = pos.detach().requires_grad_()
    return -torch.autograd.grad(model(z, graph, pos)["energy"], pos)[0]


KINDS = torch.tensor([0, 1, 2, 1, 0, 2, 2, 0, 1, 1, 0])
OUTPUT = {"energy": "scalar", "atoms": "scalars", "vectors": "vectors"}


@pytest.mark.parametrize("cell", [None, CELL])
def test_all_symmetries_hold_to_1e_10(cell):
    recipe = ga.graphs.radius(..., r=REACH)
    options = {"pos": numbers(N, 3), "cell": cell, "symmetry": "all"}
    report = ga.verify(stack(), recipe, z=KINDS, output=OUTPUT, **options)
    assert report.ok, report
    assert report.worst.bound == 1e-10
    model = stack()
    report = ga.verify(
        lambda z, graph, pos: forces(model, z, graph, pos),
        recipe,
        z=KINDS,
        output="vectors",
        **options,
    )
    assert report.ok, report


@pytest.mark.parametrize("cell", [None, CELL])
def test_forces_sum_to_zero_and_are_slopes(cell):
    model, pos = stack(), numbers(N, 3)
    recipe = ga.graphs.radius(..., r=REACH)

    def energy(pos):
        graph = recipe(pos) if cell is None else recipe(pos, cell=cell)
        return model(KINDS, graph, pos)["energy"].detach()

    graph = recipe(pos) if cell is None else recipe(pos, cell=cell)
    push = forces(model, KINDS, graph, pos)
    assert push.abs().max() > 1e-3
    assert push.sum(0).abs().max() < 1e-12
    for atom, axis in ((0, 0), (4, 1), (10, 2)):
        step = torch.zeros_like(pos)
        step[atom, axis] = 1e-5
        slope = (energy(pos + step) - energy(pos - step)) / 2e-5
        assert torch.isclose(-slope, push[atom, axis], rtol=1e-5, atol=1e-8)


def test_second_derivatives_train_on_forces():
    module, pos = layer(), numbers(7, 3)
    graph = ga.graphs.radius(pos, REACH)
    x = numbers(7, WIDTH, seed=1)

    def energy(pos):
        scalars, vectors = module(x, graph, pos)
        return (scalars**2).sum() + (vectors**2).sum()

    assert torch.autograd.gradgradcheck(energy, pos.clone().requires_grad_(), atol=1e-4)


def test_an_edge_at_the_cutoff_counts_for_nothing():
    module = layer()
    pos = torch.tensor([[0.0, 0, 0], [REACH, 0, 0], [0, 1.0, 0]], dtype=torch.float64)
    x = numbers(3, WIDTH, seed=1)
    near = ga.graphs.radius(pos, REACH - 0.01)
    wide = ga.graphs.radius(pos, REACH)
    assert wide.num_edges == near.num_edges + 2
    for one, other in zip(module(x, near, pos), module(x, wide, pos), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-14)


def test_it_takes_an_edge_index_and_is_a_message_passing_of_pyg():
    module, pos, x = layer(), numbers(N, 3), numbers(N, WIDTH, seed=1)
    graph = ga.graphs.knn(pos, 3)
    seen = []
    handle = module.register_message_forward_hook(lambda *call: seen.append(call[-1].shape))
    found = module(x, graph.edge_index, pos)
    handle.remove()
    assert seen == [(graph.num_edges, WIDTH + 3 * VECTORS)]
    assert torch.equal(found[0], module(x, graph, pos)[0])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"graph": ga.graphs.full(5)},
            GraphError,
            "graph must have 11 targets and 11 sources, got AttentionGraph",
        ),
        ({"graph": "knn"}, GraphError, "the layer needs an AttentionGraph, got str"),
        ({"v": torch.zeros(N, 3)}, ShapeError, "v must be"),
        ({"v": torch.zeros(N, 3, 3)}, ShapeError, r"v must have shape \(11, 9, 3\)"),
        (
            {"edge_attr": torch.zeros(3, 2)},
            ShapeError,
            r"edge_attr must have shape \(121, 0\), got a Tensor \(3, 2\)",
        ),
    ],
)
def test_arguments_are_checked(change, error, words):
    given = {"x": numbers(N, WIDTH), "graph": ga.graphs.full(N), "pos": numbers(N, 3), **change}
    with pytest.raises(error, match=words):
        layer()(**given)


def test_sizes_are_checked():
    with pytest.raises(OptionError, match="num_vectors must be a multiple"):
        ga.nn.EquivariantAttention(6, 3, 4, cutoff=1.0)
    with pytest.raises(OptionError, match="normalize must be"):
        ga.nn.EquivariantAttention(6, 3, cutoff=1.0, normalize="sum")
    with pytest.raises(ShapeError, match="as edge_dim says"):
        layer(edge_dim=2)(numbers(N, WIDTH), ga.graphs.full(N), numbers(N, 3))


def test_coordinates_of_a_map_serve_a_layer_of_float32():
    module = layer().float()
    pos = numbers(N, 3)
    graph = ga.graphs.knn(pos, k=4)
    x = numbers(N, WIDTH, seed=1).float()
    near = module(x, graph, pos)
    for one, other in zip(module(x, graph, pos + 5e6), near, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
