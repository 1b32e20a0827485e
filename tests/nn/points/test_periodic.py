"""Layers on edges to images in a cell that repeats: physics that must hold, and what carries the
offsets.
"""

import pickle

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, ShapeError
from graphattn.graphs import knn, radius
from graphattn.nn import edge_geometry, local_pca, relative_positions
from graphattn.plans.edge_tensors import EdgeTensors
from graphattn.plans.transfer import pack, unpack

DOUBLE = torch.float64
REACH = 2.3


def crystal(atoms=7, seed=0):
    draw = torch.Generator().manual_seed(seed)
    cell = 2.1 * torch.eye(3, dtype=DOUBLE) + 0.3 * torch.randn(3, 3, generator=draw, dtype=DOUBLE)
    pos = torch.rand(atoms, 3, generator=draw, dtype=DOUBLE) @ cell
    return pos + torch.randn(atoms, 3, generator=draw, dtype=DOUBLE), cell


POS, CELL = crystal()
GRAPH = radius(POS, REACH, cell=CELL)
KINDS = torch.arange(7) % 3


class Energies(torch.nn.Module):
    """An energy for each atom, from kinds and distances alone."""

    def __init__(self, width=12):
        super().__init__()
        self.kinds = torch.nn.Embedding(3, width)
        self.layers = torch.nn.ModuleList(
            [ga.nn.GraphAttention(width, 2, edge_dim=5) for _ in range(2)]
        )
        self.out = torch.nn.Linear(width, 1)

    def forward(self, kinds, graph, pos, cell=None):
        d = edge_geometry(graph, pos, features=("distance",), cell=cell)
        waves = torch.cat([torch.cos(d * k) for k in range(1, 6)], 1)
        waves = waves * (1 - (d / REACH) ** 2).clamp(min=0) ** 3
        x = self.kinds(kinds)
        for layer in self.layers:
            x = x + layer(torch.tanh(x), graph, edge_attr=waves)
        return self.out(x).squeeze(-1)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Energies().double()


@pytest.mark.parametrize("build", [radius, lambda pos, r, cell: knn(pos, 5, cell=cell)])
@pytest.mark.parametrize("times", [(2, 1, 1), (1, 2, 3)])
def test_a_repeated_cell_gives_the_same_numbers_per_atom(model, build, times):
    expected = model(KINDS, build(POS, REACH, cell=CELL), POS)
    steps = torch.cartesian_prod(*map(torch.arange, times)).double()
    pos = torch.cat([POS + step @ CELL for step in steps])
    large = CELL * torch.tensor(times)[:, None]
    energies = model(KINDS.repeat(len(steps)), build(pos, REACH, cell=large), pos)
    torch.testing.assert_close(energies, expected.repeat(len(steps)), rtol=0, atol=1e-10)


def test_translations_images_and_rotations_change_no_energy(model):
    expected = model(KINDS, GRAPH, POS)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=DOUBLE)).Q
    steps = torch.randint(-3, 4, (7, 3)).double()
    other_cell = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=DOUBLE) @ CELL
    for pos, cell in (
        (POS + torch.tensor([5.0, -0.3, 0.1]), CELL),
        (POS + steps @ CELL, CELL),
        (POS @ rotation, CELL @ rotation),
        (POS, other_cell),
    ):
        energies = model(KINDS, radius(pos, REACH, cell=cell), pos)
        torch.testing.assert_close(energies, expected, rtol=0, atol=1e-10)


def test_permuted_atoms_have_their_own_energies(model):
    order = torch.randperm(7)
    energies = model(KINDS[order], radius(POS[order], REACH, cell=CELL), POS[order])
    torch.testing.assert_close(energies, model(KINDS, GRAPH, POS)[order], rtol=0, atol=1e-10)


def test_training_on_forces_by_a_second_derivative(model):
    pos = POS.clone().requires_grad_()
    energy = model(KINDS, GRAPH, pos).sum()
    (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
    torch.testing.assert_close(slope.sum(0), torch.zeros(3, dtype=DOUBLE), rtol=0, atol=1e-12)
    step = 1e-5 * torch.randn(7, 3, dtype=DOUBLE)
    ends = [model(KINDS, radius(at, REACH, cell=CELL), at).sum() for at in (POS + step, POS - step)]
    torch.testing.assert_close((slope * step).sum() * 2, ends[0] - ends[1], rtol=1e-6, atol=1e-12)
    loss = (slope - 0.1).square().sum()
    named = dict(model.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    for name, grad in zip(named, grads, strict=True):
        if grad is None:  # a constant of the energy
            assert name in ("out.bias", "layers.1.out_proj.bias")
        else:
            assert bool(grad.abs().sum() > 0), name

    def of_forces(weight):
        parts = dict(model.named_parameters()) | {"out.weight": weight}
        out = torch.func.functional_call(model, parts, (KINDS, GRAPH, pos)).sum()
        return (torch.autograd.grad(out, pos, create_graph=True)[0] - 0.1).square().sum()

    assert torch.autograd.gradcheck(of_forces, (model.out.weight.detach().requires_grad_(),))


def test_stress_is_the_slope_by_a_strain_of_cell_and_positions(model):
    def energy(strain):
        deformed = torch.eye(3, dtype=DOUBLE) + strain
        return model(KINDS, GRAPH, POS @ deformed, cell=CELL @ deformed).sum()

    strain = torch.zeros(3, 3, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(energy, (strain,))
    (stress,) = torch.autograd.grad(energy(strain), strain)
    torch.testing.assert_close(stress, stress.T, rtol=0, atol=1e-10)  # no torque


@pytest.mark.parametrize("backend", ["message_passing", "dense", "edges"])
def test_a_pair_through_two_images_is_two_edges(backend):
    query, key, value = (torch.randn(7, 2, 5, dtype=DOUBLE) for _ in range(3))
    bias = torch.randn(GRAPH.num_edges, 2, dtype=DOUBLE)
    if backend == "dense":  # which has one bias for each pair
        bias = bias * 0
    scores = (query[GRAPH.target] * key[GRAPH.source]).sum(-1) * 5**-0.5 + bias
    out = ga.attention(
        query, key, value, GRAPH, score_bias=bias if backend != "dense" else None, backend=backend
    )
    for t in range(7):
        edges = GRAPH.target == t
        weights = scores[edges].softmax(0)
        expected = (weights[:, :, None] * value[GRAPH.source[edges]]).sum(0)
        torch.testing.assert_close(out[t], expected, rtol=0, atol=1e-12)


def test_verify_passes_on_images():
    layer = ga.nn.GraphAttention(8, 2, edge_dim=3).double()
    assert ga.verify(layer, GRAPH).ok
    assert ga.verify(ga.nn.GraphAttention(8, 2).double(), knn(POS, 3, cell=CELL)).ok


def test_positions_of_a_layer_read_the_images():
    layer = ga.nn.GraphAttention(8, 2, edge_dim=3).double()
    x = torch.randn(7, 8, dtype=DOUBLE)
    expected = layer(x, GRAPH, edge_attr=relative_positions(GRAPH, POS))
    assert torch.equal(layer(x, GRAPH, positions=POS), expected)


def test_distances_and_angles_are_those_of_copies_in_space():
    steps = GRAPH.offsets.double() @ CELL
    copies = POS[GRAPH.source] + steps
    pairs = torch.stack((torch.arange(GRAPH.num_edges), GRAPH.target))
    plain = ga.from_edge_index(pairs, num_sources=GRAPH.num_edges, num_targets=7)
    normals = torch.nn.functional.normalize(torch.randn(7, 3, dtype=DOUBLE), dim=1)
    features = ("offset", "distance", "direction", "pair", "alignment", "frame", "bend")
    found = edge_geometry(GRAPH, POS, features=features, normals=normals)
    expected = edge_geometry(
        plain,
        copies,
        POS,
        features=features,
        normals=normals[GRAPH.source],
        queries_normals=normals,
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        local_pca(GRAPH, POS)[1], local_pca(plain, copies, POS)[1], rtol=0, atol=1e-10
    )


def test_every_form_of_a_graph_carries_its_offsets(tmp_path):
    expected = relative_positions(GRAPH, POS)
    shard = ga.distributed.shard(GRAPH)
    packed = pack(GRAPH, lambda graph: {})
    blocks = packed.blocks(torch.device("cpu"))
    ga.save(GRAPH, tmp_path / "graph.json")
    torch.save(GRAPH, tmp_path / "graph.pt")
    for graph in (
        shard,
        EdgeTensors(GRAPH),
        GRAPH.to("cpu"),
        GRAPH & ga.graphs.full(7),
        GRAPH.with_self_loops().without_self_loops(),
        GRAPH.reverse().reverse(),
        GRAPH.subgraph(range(7)),
        pickle.loads(pickle.dumps(GRAPH)),
        torch.load(tmp_path / "graph.pt", weights_only=True),
        ga.load(tmp_path / "graph.json"),
        unpack(packed.data, blocks),
        ga.PerExample((GRAPH,)),
    ):
        assert torch.equal(relative_positions(graph, POS), expected)
    torch.testing.assert_close(
        relative_positions(GRAPH.reverse(), POS), -expected, rtol=0, atol=1e-15
    )
    few = torch.tensor([5, 0, 3])
    part = GRAPH.subgraph(few)
    kept = torch.isin(GRAPH.source, few) & torch.isin(GRAPH.target, few)
    assert torch.equal(relative_positions(part, POS[few]), expected[kept])
    assert torch.equal(
        relative_positions(GRAPH.relabel(torch.arange(6, -1, -1)), POS.flip(0)), expected
    )


def test_examples_of_a_batch_have_their_own_cells():
    pos, cell = crystal(4, 1)
    other = radius(pos, REACH, cell=cell)
    graphs = ga.PerExample((GRAPH, other))
    padded = torch.stack((POS, torch.cat((pos, torch.zeros(3, 3, dtype=DOUBLE)))))
    expected = torch.cat((relative_positions(GRAPH, POS), relative_positions(other, pos)))
    assert torch.equal(relative_positions(graphs, padded), expected)
    union = ga.disjoint_union([GRAPH, other])
    assert torch.equal(relative_positions(union, torch.cat((POS, pos))), expected)
    cells = torch.stack((CELL, cell)).requires_grad_()
    given = relative_positions(union, torch.cat((POS, pos)), cell=cells)
    assert torch.equal(given, expected)
    assert bool((torch.autograd.grad(given.square().sum(), cells)[0] != 0).all())
    beside = ga.disjoint_union([knn(pos, 2), GRAPH])
    vectors = relative_positions(beside, torch.cat((pos, POS)))
    assert torch.equal(vectors[8:], expected[: GRAPH.num_edges])
    assert torch.equal(vectors[:8], relative_positions(knn(pos, 2), pos))


def test_a_compiled_program_reads_the_images():
    program = torch.compile(relative_positions, fullgraph=True, backend="eager")
    assert torch.equal(program(GRAPH, POS), relative_positions(GRAPH, POS))


def test_autocast_rounds_no_vector():
    with torch.autocast("cpu", torch.bfloat16):
        vectors = relative_positions(GRAPH, POS.float())
    torch.testing.assert_close(vectors, relative_positions(GRAPH, POS).float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GRAPH | GRAPH, r"\| is of pairs of nodes, and .* has an edge for each image"),
        (lambda: ga.graphs.full(7) & GRAPH, r"& \(its second graph\) is of pairs"),
        (lambda: GRAPH - GRAPH, r"- \(its second graph\) is of pairs"),
        (lambda: ~GRAPH, "~ is of pairs"),
        (lambda: GRAPH @ GRAPH, "@ is of pairs"),
        (lambda: GRAPH.k_hop(2), "k_hop is of pairs"),
        (lambda: ga.graphs.block_sparse(GRAPH, 2), "block_sparse is of pairs"),
        (lambda: ga.graphs.composite([[GRAPH]]), "composite is of pairs"),
        (lambda: ga.graphs.degree_matched_random(GRAPH), "degree_matched_random is of pairs"),
        (lambda: ga.graphs.line_graph(GRAPH, directed=False), "directed=False. is of pairs"),
        (lambda: ga.PerHead((GRAPH, GRAPH)), "PerHead is of pairs"),
        (
            lambda: relative_positions(GRAPH, POS, cell=torch.eye(2)),
            r"cell must have shape \(..., 3\), got a Tensor \(2, 2\)",
        ),
        (lambda: relative_positions(GRAPH, POS, cell=torch.rand(2, 3, 3)), "or have 1 cell"),
        (lambda: relative_positions(knn(POS, 2), POS, cell=CELL), "got one without"),
    ],
)
def test_what_would_lose_the_offsets_is_refused(call, words):
    with pytest.raises((GraphError, ShapeError), match=words):
        call()


def test_a_graph_of_a_callers_offsets():
    index, offsets = GRAPH.edge_index, GRAPH.offsets
    assert ga.from_edge_index(index, num_nodes=7, offsets=offsets, cell=CELL).equals(GRAPH)
    order = torch.randperm(GRAPH.num_edges)
    mixed = ga.from_edge_index(
        index[:, order], num_nodes=7, offsets=offsets[order].tolist(), cell=CELL.tolist()
    )
    assert mixed.equals(GRAPH)
    other = offsets.clone()
    other[0, 0] += 5
    assert not ga.from_edge_index(index, num_nodes=7, offsets=other, cell=CELL).equals(GRAPH)
    twice = torch.cat((index, index[:, :1]), 1)
    again = torch.cat((offsets, offsets[:1]))
    with pytest.raises(GraphError, match=f"edges 0 and {GRAPH.num_edges} are both"):
        ga.from_edge_index(twice, num_nodes=7, offsets=again, cell=CELL)
    merged = ga.from_edge_index(twice, num_nodes=7, offsets=again, cell=CELL, duplicates="merge")
    assert merged.equals(GRAPH)
    for options, words in (
        ({"offsets": offsets}, "cell must be lattice vectors as rows"),
        ({"cell": CELL}, "cell is for edges with image offsets"),
        ({"offsets": offsets[1:], "cell": CELL}, "a row for each edge"),
        ({"offsets": offsets.double(), "cell": CELL}, "offsets must be integers"),
        ({"offsets": offsets, "cell": CELL.expand(2, 3, 3)}, "batch must be integers"),
        ({"offsets": offsets, "cell": CELL.expand(2, 3, 3), "batch": [2] * 7}, r"in \[0, 2\)"),
    ):
        with pytest.raises(GraphError, match=words):
            ga.from_edge_index(index, num_nodes=7, **options)


def test_a_walk_to_another_image_is_no_way_back():
    walks = ga.graphs.line_graph(GRAPH, non_backtracking=True)
    offsets, first, last = GRAPH.offsets, walks.source, walks.target
    back = GRAPH.source[first] == GRAPH.target[last]
    assert bool(back.any())
    assert bool((offsets[first] + offsets[last]).any(1)[back].all())
    assert walks.num_edges == ga.graphs.line_graph(GRAPH).num_edges - GRAPH.num_edges


def test_networkx_has_the_offset_of_each_edge():
    G = ga.convert.to_networkx(GRAPH)
    found = sorted((u, v, *data["offset"]) for u, v, data in G.edges(data=True))
    ends = GRAPH.edge_index.T.tolist()
    expected = [(*pair, *o) for pair, o in zip(ends, GRAPH.offsets.tolist(), strict=True)]
    assert found == sorted(expected)
