"""Ceilings by colour refinement against networkx, and against what is trained."""

import networkx
import pytest
import torch
from tiny_study import Adding, tiny_comparison, tiny_data

import graphattn as ga
from graphattn import study
from graphattn.study.fits import CANNOT
from graphattn.study.fitting import Reading
from graphattn.study.network import Network
from graphattn.study.predictions import predicted
from graphattn.study.refinement import _refined, ceilings

LAYERS = 2


def compared(graphs, targets, positions="none", inputs=None, **changes):
    """Samples with graphs of their own, and alike in everything else."""
    nodes = graphs[0].num_nodes
    if inputs is None:
        inputs = torch.zeros(len(graphs), nodes, dtype=torch.int64)
    data = study.Data(inputs, torch.as_tensor(targets), test=1, **changes)
    arms = {"own": lambda sample: graphs[sample.index]}
    return tiny_comparison(
        arms, data, positions=positions, controls=(), budgets=study.Budget(None, 3)
    )


def skips(step, nodes=11):
    """A circular skip link graph: 1-WL cannot tell it from others of its size."""
    return ga.graphs.circulant(nodes, (-step, -1, 0, 1, step))


def test_circular_skip_links_are_told_apart_by_hops_alone():
    graphs = [skips(2), skips(3), skips(2), skips(3), skips(3)]
    hops = []
    for graph in graphs:
        walks = torch.linalg.matrix_power(graph.mask().double(), 2) > 0
        hops.append(2 - walks.long() - graph.mask().long())
    given = {"positions": ("none", "pairs"), "pairs": torch.stack(hops)}
    about = compared(graphs, [0, 1, 0, 1, 1], **given)
    assert ceilings(about, about.graphs["own"]) == {"none": 3 / 5, "pairs": 3 / 5}
    full = tiny_comparison(
        {"full": ga.graphs.full(11)},
        about.data,
        positions=("none", "pairs"),
        controls=(),
        budgets=study.Budget(None, 3),
    )
    assert ceilings(full, full.graphs["full"]) == {"none": 3 / 5}


@pytest.mark.parametrize("seed", range(3))
def test_colours_part_graphs_as_those_of_networkx_do(seed):
    """Graphs of 7 nodes, many of which are alike, after as many rounds."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randint(2, (60, 7), generator=random)
    graphs = []
    theirs = []
    for tokens in inputs.tolist():
        other = networkx.gnm_random_graph(7, 5, seed=int(torch.randint(9, (1,), generator=random)))
        networkx.set_node_attributes(other, {i: str(token) for i, token in enumerate(tokens)}, "t")
        theirs.append(
            networkx.weisfeiler_lehman_graph_hash(other, node_attr="t", iterations=LAYERS)
        )
        graphs.append(ga.from_networkx(other.to_directed()))
    about = compared(graphs, torch.arange(60) % 3, inputs=inputs)
    network = Network(about.model, about.data, "mean", "none")
    reading = Reading(about.data, about.graphs["own"])
    colours = _refined(about, network, reading, torch.arange(60), "none").sum(-1).tolist()
    pairs = set(zip(colours, theirs, strict=True))
    assert len(pairs) == len(set(colours)) == len(set(theirs)) < 60


def test_a_ceiling_is_for_arms_to_which_it_applies():
    data = tiny_data()
    about = tiny_comparison({"window": ga.graphs.sliding_window(7, 3, causal=False)}, data)
    learned = tiny_comparison({"self": ga.graphs.self_loops(7)}, data, positions="learned")
    assert predicted(learned, "self")["colours"] == {}  # a place and a token for each node
    alone = predicted(about, "self")["colours"]["none"]
    counts = torch.stack([row.bincount(minlength=5) for row in data.inputs])
    _, of = counts.unique(dim=0, return_inverse=True)
    most = sum(int(data.targets[of == i].bincount().max()) for i in range(int(of.max()) + 1))
    assert alone == pytest.approx(most / len(data))
    assert predicted(about, "shuffled labels, window")["colours"] == {}
    own = study.CustomModel(Adding, layers=1)
    of_user = tiny_comparison({"self": ga.graphs.self_loops(7)}, data, model=own)
    assert ceilings(of_user, of_user.graphs["self"]) == {}  # it is given places


def test_no_training_beats_the_colours_and_such_an_arm_cannot_fit(tmp_path):
    graphs = [skips(2 + i % 2) for i in range(40)]
    targets = torch.arange(40) % 2
    arms = {"skips": lambda sample: graphs[sample.index]}
    tokens = torch.zeros(40, 11, dtype=torch.int64)
    found = study.run(
        arms,
        study.Data(tokens, targets, test=20),
        budgets=study.Budget(None, 20),
        controls=(),
        seeds=2,
        processes=0,
        out=tmp_path,
    )
    row = found.row("skips")
    assert row.prediction["colours"] == {"none": 0.5}
    assert found.fit(row).classes == {CANNOT: 2}
    assert "0.500 by colours" in str(found)
