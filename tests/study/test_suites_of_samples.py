"""Study files in which every sample has a graph of its own: lists along trees, clouds, small
graphs.
"""

from pathlib import Path

import networkx as nx
import pytest
import torch

import graphattn as ga
from graphattn.study.arms import graphs_of
from graphattn.study.data import samples
from graphattn.study.run import load, run_file

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
atlas, listops, points = (
    load(STUDIES / name / "study.py") for name in ("atlas", "listops", "points")
)
SIGNS = {listops.MIN: min, listops.MAX: max, listops.SM: lambda x: sum(x) % 10}


def evaluated(tokens):
    """By the innermost brackets first, which is not how the suite draws them."""
    stack = []
    for token in tokens:
        if token != listops.CLOSE:
            stack.append(("digit", token) if token < 10 else ("operator", token))
            continue
        values = []
        while stack[-1][0] == "digit":
            values.append(stack.pop()[1])
        operator = stack.pop()[1]
        median = (
            int(torch.tensor(values).double().quantile(0.5)) if operator == listops.MED else None
        )
        stack.append(("digit", SIGNS[operator](values) if median is None else median))
    assert len(stack) == 1
    return stack[0][1]


@pytest.mark.slow
def test_a_list_has_the_value_of_its_tokens_and_a_tree_of_as_many_edges():
    data = listops.data(200, 50)
    assert int(data.sizes.min()) >= 6
    for sample, target in zip(samples(data), data.targets.tolist(), strict=True):
        assert evaluated(sample.inputs.tolist()) == target
        tree = listops.tree(sample)
        assert tree.num_edges == sample.num_nodes + 2 * (sample.num_nodes - 1)
        assert (
            int(ga.analysis.receptive_field([tree] * 4, targets=[0]).sizes[-1]) == sample.num_nodes
        )


def test_a_window_of_7_brings_at_most_12_other_tokens_to_the_first():
    window = ga.graphs.sliding_window(28, 7, causal=False)
    assert int(ga.analysis.receptive_field([window] * 4, targets=[0]).sizes[-1]) == 12 + 1


def test_clouds_are_of_radius_1_turned_and_read_by_their_nearest():
    pytest.importorskip("trimesh")
    data = points.data(60, 20)
    torch.testing.assert_close(data.pos.square().sum(-1).mean(-1), torch.ones(60))
    assert len(points.shapes()) == data.classes == 7
    assert float(data.pos.std(1).std()) > 0.05  # no axis is the same in all
    graphs = graphs_of("kNN 9", points.arms()["kNN 9"], data, 2)
    nearest = torch.cdist(data.pos[3], data.pos[3]).topk(9, largest=False).indices.sort(-1).values
    assert torch.equal(graphs.each[3].source.view(-1, 9).sort(-1).values, nearest)


def test_atlas_reads_along_edges_and_its_ceilings_are_those_it_states():
    data = atlas.data("diameter")
    for sample, graph, target in list(
        zip(samples(data), atlas.atlas(), data.targets.tolist(), strict=True)
    )[::40]:
        assert {(s, t) for s, t in atlas.one_hop(sample).edge_index.t().tolist() if s < t} == {
            (a, b) for a, b in map(sorted, graph.edges)
        }
        assert target == (nx.diameter(graph) if nx.is_connected(graph) else 7)
    told = {
        name: [round(atlas.ceiling(name, rounds), 3) for rounds in (0, 2)]
        for name in atlas.PROPERTIES
    }
    assert told == {"diameter": [0.851, 0.996], "triangles": [0.821, 0.985]}
    assert all(
        f".{round(1000 * share)}" in atlas.__doc__ for shares in told.values() for share in shares
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atlas", "listops", "points"])
def test_a_quick_suite_trains_checks_and_reports(name, tmp_path):
    pytest.importorskip("trimesh")
    report = run_file(STUDIES / name / "study.py", tmp_path, quick=True, processes=0)
    assert report.counts == {"planned": 2, "done": 2, "capped": 0, "failed": 0}
    (about,) = report.plan["comparisons"].values()
    same, worst = about["checks"].values()
    assert same is True
    assert 0 <= worst <= 1e-9
    assert str(report).startswith(f"# Study: {name}")
    assert "**Quick:** smaller than what follows says" in str(report)
