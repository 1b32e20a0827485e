"""The table of goals: every figure has its case, its pair or its choices."""

import pytest
import torch
from bench_rows import case, row

import graphattn as ga
from graphattn import bench
from graphattn.bench import builders, figures
from graphattn.bench.pairs import Measured, taken_in_turn
from graphattn.bench.problem import BOTH, FORWARD
from graphattn.bench.sample import SAMPLE, Choice, choice_on
from graphattn.bench.session import Task


def test_the_figures_have_every_case_that_they_are_read_from():
    tasks = list(bench.suite("figures"))
    peers = {task.name: task.peers for task in tasks if isinstance(task, Task)}
    assert peers["knn64"] == ("PyG", "PyG compiled", "DGL", "gather by hand")
    assert peers["knn16_million"] == ("auto",)
    report = bench.Report({}, {}, [case(name) for name in peers])
    report.pairs = [Measured(name, "", [6.0, 5.0, 7.0], [2.0, 2.0, 2.0]) for name in bench.PAIRS]
    report.choices = [Choice("a", "tiles", {"tiles": (4.0, 9.0), "edges": (1.0, 9.0)})]
    for kept in report.cases:
        kept.rows = [own for own in kept.rows if own.ours]
        kept.row("auto").at_ms = {1: {BOTH: 12.0}}
        kept.rows += [row(name, [50.0], [90.0], at_ms={1: {BOTH: 30.0}}) for name in sum(peers.values(), ())]
    judged = figures.judged(report)
    assert {figure.name for figure in judged} == {figure.name for figure in bench.FIGURES}
    value = {(figure.name, figure.mode): figure.value for figure in judged}
    assert value["knn16: PyG compiled", FORWARD] == 25.0
    assert value["the four: PyG compiled, both on one thread, the least", BOTH] == 2.5
    assert value["knn16_million: backward over forward", BOTH] == 2.0
    assert value["sigmoid", FORWARD] == 3.0
    assert value["choice of 60, the worst over the best", FORWARD] == 2.0
    assert "<= 1.5  missed" in figures.table(report)


def test_a_pair_is_taken_in_turn():
    calls = []
    taken = taken_in_turn((lambda: calls.append("a"), lambda: calls.append("b")), repeats=5, seconds=0.0)
    assert [len(times) for times in taken] == [3, 3]
    assert calls[:2] == ["a", "b"]
    mine, other = bench.PAIRS["layer of 16"].make()
    assert torch.allclose(mine(), other(), atol=1e-6)


def test_builders_and_what_they_are_judged_by_give_the_same():
    graph, index = (call() for call in builders.nearest(200))
    assert graph.source.view(200, 16).sort(1).values.tolist() == torch.tensor(index[1][:, 1:]).sort(1).values.tolist()
    graph, trees = (call() for call in builders.nearest_of_clouds(3, 50))
    wanted = torch.cat([torch.tensor(tree[1][:, 1:]) + 50 * i for i, tree in enumerate(trees)])
    assert torch.equal(graph.source.view(150, 16).sort(1).values, wanted.sort(1).values)
    graph, lists = (call() for call in builders.within(200))
    assert graph.in_degree.tolist() == [len(each) - 1 for each in lists]
    graph, mesh = (call() for call in builders.rings(1))
    assert graph.equals(ga.from_edge_index(mesh.edge_index, num_nodes=42))
    shape, pos = (call() for call in builders.ply(10))
    assert torch.equal(shape.pos, pos)


@pytest.mark.slow
def test_the_choice_is_judged_on_a_graph_of_the_sample():
    assert len(SAMPLE) == 60
    choice = choice_on(next(i for i, (name, _) in enumerate(SAMPLE) if name == "tree 64"), seconds=0.0)
    assert choice.chosen in choice.ms
    assert choice.over_best >= 1.0
