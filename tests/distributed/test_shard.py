"""A graph that several processes share: the outputs of one process, bit for bit, and gradients to
rounding.
"""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from traffic import Traffic

import graphattn as ga
from graphattn.distributed import mean, shard
from graphattn.distributed.exchange import Processes, RequestedRows
from graphattn.distributed.partition import contiguous, rcb
from graphattn.distributed.plans import Counts, LayerWidths, choose
from graphattn.errors import BackendError, GraphError, OptionError, ProcessError, ShapeError


def judge(rows):
    refusals = {name: rows.pop(name) for name in list(rows) if "words" in rows[name]}
    weights = rows.pop("weights", None)
    assert max(rows.pop("caches")["apart"]) < 1e-12
    for name in ("narrow rows of x", "keys and values, grouped", "three blocks"):
        overlap = rows.pop(f"overlap of {name}")
        assert overlap["bits"] == 0, (name, overlap)
        assert overlap["gradient"] < 1e-12, (name, overlap)
    pieces, files = rows.pop("pieces"), rows.pop("files")
    assert pieces["wrong"] == 0
    # one process has the whole
    assert pieces["control"] > 0 or weights is None or weights["edges"] == 515
    assert (files["apart"], files["edges"]) == (0, 515)
    for plan in ("halo", "queries"):
        dropout = rows.pop(f"dropout, {plan}")
        assert dropout["apart"] <= 1e-12 * (plan == "queries")
        assert dropout["dropped"] > 0.1
    for plan in ("halo", "heads", "queries", "auto"):
        counted = rows.pop(f"bytes, {plan}")
        assert (counted["apart"], counted["paper"]) == (0, 0), (plan, counted)
        assert counted["least"] > 0 or not counted["calls"]
        assert counted["output"] < 1e-12
    # few targets read many sources
    assert counted["plan"] == ("queries" if counted["calls"] else "halo")
    for name, row in rows.items():
        if "bitwise" in row:
            assert row["bitwise"], (name, row)
            assert row["close"], (name, row)
            assert row["gradient"] > 0.1 or name.startswith("no edges"), (name, row)
        else:
            assert max(row["output"], row["loss"], row["gradient"]) < 1e-12, (name, row)
            assert row["moved"] > 1e-3, (name, row)
    return refusals, weights


def test_two_processes_run_as_one():
    rows = ranks.verdicts("forward.py layers.py norms.py levels.py numbering.py", 2, "some")
    assert sum(name.startswith("levels: ") for name in rows) == 13
    assert sum(name.startswith("numbers: ") for name in rows) == 19
    assert sum("bitwise" in row for row in rows.values()) == 32
    told = [name for name in rows if name.startswith("three blocks, ") and "of heads" not in name]
    assert {name.rpartition(", ")[2] for name in told} == {
        "halo",
        "heads",
        "queries",
    }
    synced, control = rows.pop("batch norms, synced"), rows.pop("batch norms, control")
    assert synced["few"] > 0
    assert max(synced["losses"], synced["state"]) < 1e-9, synced
    assert min(control["losses"], control["state"], synced["moved"]) > 1e-3, control
    refusals, weights = judge(rows)
    for name, what in {
        "another graph": "but the edges of process",
        "another rule": "list different edges into the targets of process",
        "another partition": "but the partition of process",
        "turned points": "but positions, normals or signals of process",
        "another plan": "but the plan and width of process",
        "weights by heads": "weights are of a process's heads",
        "weights by queries": "weights need all sources at once",
    }.items():
        assert all(what in words for words in refusals[name]["words"]), refusals[name]
    assert weights["apart"] == 0
    assert "plan: halo, of 2 processes, partition rcb" in weights["report"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3, 4])
def test_any_number_of_processes_runs_as_one(processes):
    rows = ranks.verdicts(
        "forward.py layers.py levels.py numbering.py", processes, timeout=1500, group_timeout=300
    )
    assert len(rows) > 250
    refusals, _ = judge(rows)
    # refused by one process, too
    some = [row for name, row in refusals.items() if not name.startswith("weights")]
    assert all("nothing" in words for row in some for words in row["words"]) == (processes == 1)


@pytest.mark.parametrize(("plan", "other"), [("heads", "halo"), ("queries", "halo")])
def test_a_normalisation_that_may_read_numbers_is_refused_where_edges_are_cut(plan, other):
    layer = ga.nn.GraphAttention(8, 2, normalize=lambda score, target, num_targets: score)
    mine = shard(ga.graphs.causal(17), plan=plan, heads=2)
    with pytest.raises(BackendError, match=f'plan="{plan}" cannot .* try plan="{other}"'):
        layer(torch.randn(17, 8), mine)


def test_one_process_owns_the_whole_graph():
    graph, x = ga.graphs.sliding_window(17, 5, causal=True), torch.randn(17, 2, 3)
    mine = shard(graph)
    assert torch.equal(ga.attention(x, x, x, mine), ga.attention(x, x, x, graph, backend="edges"))
    assert torch.equal(mine.edges, torch.arange(graph.num_edges))
    assert mine.owned.tolist() == list(range(17))
    assert mean(x[:, 0], mine) == pytest.approx(float(x[:, 0].mean()))
    with pytest.raises(ShapeError, match="17 rows along dim 0, the whole graph's targets"):
        mine.scatter(x[:3])
    with pytest.raises(ShapeError, match=r"per_node must have shape \(17, ...\)"):
        mean(x[:3], mine)


def test_graphs_of_heads_are_shared_one_by_one():
    graphs, x = (
        ga.PerHead((ga.graphs.sliding_window(17, 5, causal=True), ga.graphs.causal(17))),
        torch.randn(17, 4, 3),
    )
    mine, whole = shard(graphs), ga.attention(x, x, x, graphs, backend="edges")
    assert torch.equal(ga.attention(x, x, x, mine), whole)
    assert not torch.equal(ga.attention(x, x, x, mine.shards[0]), whole)
    assert str(mine).count("plan: halo") == 2
    with pytest.raises(BackendError, match="biases, edge features and weights are of one graph"):
        ga.attention(x, x, x, mine, score_bias=torch.zeros(mine.num_edges, 1))
    for read in (lambda: mine.edges, lambda: ga.nn.ALiBi(4)(mine)):
        with pytest.raises(
            BackendError, match="edges of a PerHead are of each graph; take those of"
        ):
            read()


def test_a_shard_is_refused_where_the_whole_graph_is_read():
    mine = shard(ga.graphs.circulant(7, (1, 6)))
    rows = r"got Shard; pass the whole graph, and take .* own rows of the result: x\[..., shard.edges, :\] of edges"
    for read in (
        ga.nn.random_walk_pe,
        ga.nn.laplacian_eigenvector_pe,
        partial(ga.nn.ShortestPathBias(2), mine),
    ):
        with pytest.raises(GraphError, match=rows):
            read(mine) if isinstance(read, partial) else read(mine, 2)
    with pytest.raises(OptionError, match="positions must be passed with a shard"):
        ga.models.BERT(11, 8, 2, 1, max_len=9, padding_idx=0)(torch.arange(7), mine)
    with pytest.raises(GraphError, match="got EdgeTensors; pass the graph that they are of"):
        ga.nn.ALiBi(2)(ga.nn.EdgeTensors(ga.graphs.causal(7)))


@pytest.mark.slow
def test_a_hierarchy_is_shared_level_by_level():
    pos, x = torch.rand(40, 3, dtype=torch.float64), torch.randn(40, 4, dtype=torch.float64)
    shape = ga.graphs.hierarchy(pos, ratio=0.5)
    own, model = shard(shape, partition="rcb"), ga.models.UNet(4, 2, (8, 8), 2).double()
    torch.testing.assert_close(model(x, own), model(x, shape), rtol=0, atol=1e-13)
    assert [level.kept is None for level in own.levels] == [True, False]
    recipe = ga.graphs.hierarchy(..., ratio=0.5)
    torch.testing.assert_close(
        model(x, shard(recipe, partition="rcb", pos=pos)), model(x, own), rtol=0, atol=0
    )
    assert torch.equal(
        shard(ga.graphs.knn(..., 3), pos=pos).edge_index, ga.graphs.knn(pos, 3).edge_index
    )
    with pytest.raises(OptionError, match="pos must be finite"):
        shard(shape, partition="rcb", pos=pos / 0)
    with pytest.raises(GraphError, match="to moves whole hierarchies; call it before"):
        own.to("cpu")
    with pytest.raises(OptionError, match="source_partition must be left out for a hierarchy"):
        shard(shape, source_partition=torch.zeros(40))


def test_batch_norms_over_processes_are_copied_and_pickled_whole():
    model = ga.distributed.sync_batch_norms(
        torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    )
    x, processes = torch.randn(7, 3), model[1].processes
    read, copied = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    assert copied[1].processes is processes
    assert type(read[1]) is type(copied[1]) is type(model[1])
    assert isinstance(read[1].processes, Processes)
    assert torch.equal(read(x), model(x))
    assert torch.equal(read[1].running_mean, model[1].running_mean)
    assert not torch.equal(copied[1].running_mean, model[1].running_mean)
    # again, of another group
    assert type(ga.distributed.sync_batch_norms(read)[1]) is type(model[1])


def test_positions_of_a_cache_that_dropped_tokens_are_asked_for():
    layer, cache, x = (
        ga.nn.GraphAttention(8, 2, rotary=ga.nn.Rotary(4)),
        ga.nn.KeyValueCache(),
        torch.randn(5, 8),
    )
    layer(x[:3], shard(ga.graphs.causal(3)), cache=cache)
    cache.drop(1)
    with pytest.raises(
        OptionError, match="positions must be passed to a shard whose cache has dropped tokens"
    ):
        layer(x[3:], shard(ga.graphs.cross(2, 4)), cache=cache)
    layer(x[3:], shard(ga.graphs.cross(2, 4)), cache=cache, positions=torch.arange(3, 5))


def test_a_rule_is_asked_for_the_degrees_of_all_only_to_number_edges(monkeypatch):
    graph, x, asked, degrees = (
        ga.graphs.sliding_window(40, 5, causal=True),
        torch.randn(40, 2, 3),
        [],
        ga.AttentionGraph.in_degree,
    )
    wanted = ga.attention(x, x, x, graph, backend="edges")
    told = property(lambda self: asked.append(self) or degrees.fget(self))
    monkeypatch.setattr(ga.AttentionGraph, "in_degree", told)
    mine = shard(graph)
    assert torch.equal(ga.attention(x, x, x, mine), wanted)
    assert not asked
    assert torch.equal(mine.edges, torch.arange(graph.num_edges))
    assert asked


def test_bisection_halves_the_longest_side_and_ties_go_by_number():
    pos = torch.rand(1000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1.0, 4.0, 1.0]
    )
    part = rcb(pos.numpy(), 2)
    assert pos[part == 0, 1].max() <= pos[part == 1, 1].min()
    assert torch.bincount(rcb(pos.numpy(), 7)).tolist() == pytest.approx([1000 / 7] * 7, abs=3)
    assert torch.equal(rcb(np.zeros((10, 2)), 3), rcb(np.zeros((10, 2)), 3))
    assert torch.bincount(rcb(np.zeros((10, 2)), 3)).tolist() == [3, 3, 4]
    assert contiguous(0, 3).tolist() == []
    assert torch.bincount(contiguous(11, 4)).max() == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"partition": "metis"},
            'partition must be "contiguous" or "rcb", or a process for each node',
        ),
        ({"partition": "rcb"}, "pass pos="),
        ({"partition": [0] * 4}, r"partition must have shape \(5,\)"),
        (
            {"partition": [0, 0, 1, 0, 0]},
            r"partition must be in \[0, 1\), the processes, got 0 to 1",
        ),
        ({"plan": "ring"}, "plan must be"),
        ({"plan": "heads"}, 'plan="heads" cannot run: heads is not given; try plan="halo"'),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads"),
    ],
)
def test_what_fits_no_graph_is_refused(options, words):
    with pytest.raises(OptionError, match=words):
        shard(ga.graphs.causal(5), **options)


def test_the_plan_of_fewest_bytes_runs_and_the_others_say_why_not():
    def counts(remote):
        P, n = 4, 100
        each = torch.full((P,), n)
        return Counts(each, each, 10 * each, torch.tensor([remote, 1, 1, 1]), each)

    # heads bring (P - 1) / P * N / P * (1 + H / H_kv) rows: 150 with as many heads of key and
    # value, 375 with a quarter
    for remote, rows, wanted in [
        (149, LayerWidths(8), "halo"),
        (151, LayerWidths(8), "heads"),
        (299, LayerWidths(16, 4), "halo"),
        (376, LayerWidths(16, 4), "heads"),
        (299, LayerWidths(6), "halo"),
        (151, LayerWidths(), "halo"),
    ]:
        plan, refused = choose("auto", counts(remote), rows)
        assert {plan, *refused} == {"halo", "heads", "queries"}
        assert plan == wanted, (remote, rows, plan)
    assert refused["heads"] == "heads is not given"
    assert (
        "4 processes do not divide 6 heads" in choose("auto", counts(1), LayerWidths(6))[1]["heads"]
    )


def test_a_group_that_fails_says_which_process_and_why(monkeypatch):
    alone = Processes()
    with pytest.raises(
        ProcessError,
        match=r"process 0 of 1 could not add up: another has ended.*\(closed by peer\)",
    ):
        alone._guarded(lambda: (_ for _ in ()).throw(RuntimeError("closed by peer")), "add up")


def test_a_thousand_ranks_are_planned_in_one_process(monkeypatch):
    """Torch's fake group moves nothing: what a rank would receive is counted, as on paper and in
    SCALE's table.
    """
    from graphattn.distributed.exchange import Processes
    from graphattn.distributed.paper import on_paper

    graph, P, rank = ga.graphs.sliding_window(20_000, 129, causal=False), 1000, 500
    planned = on_paper(graph, P, LayerWidths(16, dtype=torch.bfloat16))
    counted = [vars(planned.counts)[name].tolist() for name in ("edges", "remote", "boundary")]
    # rows, the longest, and short ones
    counts = [(*of_rank, 20, 129, 0) for of_rank in zip(*counted, strict=True)]
    asked = torch.arange(20 * rank - 64, 20 * rank + 84)  # a window's reads are symmetric
    others = asked[(asked < 20 * rank) | (asked >= 20 * rank + 20)]
    monkeypatch.setattr(Processes, "gathered", lambda self, fact: counts)
    monkeypatch.setattr("graphattn.distributed.shards.agree", lambda *_: None)
    wanted = [(others // 20 == p).sum().item() for p in range(P)]
    own = torch.arange(20 * rank, 20 * rank + 20)
    readers = [
        own[(own[:, None] - (p * 20 + torch.arange(20))).abs().amin(1) <= 64]
        for p in range(P)
        if p != rank
    ]
    sent = [len(x) for x in readers[:rank]] + [0] + [len(x) for x in readers[rank:]]
    monkeypatch.setattr(Processes, "ids", lambda self, ids, splits: (torch.cat(readers), sent))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=P)
    try:
        mine = shard(graph, heads=16, dtype=torch.bfloat16)
        x = torch.randn(20, 16, 64, dtype=torch.bfloat16)
        with torch.no_grad(), Traffic() as traffic:
            ga.attention(x, x.clone(), x.clone(), mine)
    finally:
        dist.destroy_process_group()
    assert sum(wanted) == 128 == int(planned.counts.remote[rank])
    assert traffic.received == 128 * 4096 == int(mine.report.bytes_per_layer[rank])
    assert planned.counts.remote.tolist()[:5] == [64, 84, 104, 124, 128]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("plan", "forward", "backward"),
    [("halo", 1, 1), ("heads", 3, 3), ("queries", 3, 3)],
)
def test_collectives_of_a_plan_are_counted(plan, forward, backward, monkeypatch):
    """One for keys and values together, three for queries, outputs and a third."""
    monkeypatch.setattr("graphattn.distributed.shards.agree", lambda *_: None)
    monkeypatch.setattr(Processes, "gathered", lambda self, fact: [fact] * 8)
    monkeypatch.setattr(Processes, "ids", lambda self, ids, splits: (ids, splits))
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    try:
        mine = shard(
            ga.graphs.sliding_window(800, 65, causal=False), plan=plan, heads=8, head_dim=4
        )
        x = torch.randn(100, 8, 4, requires_grad=True)
        with CommDebugMode() as there:
            output = ga.attention(x, x.clone(), x.clone(), mine)
        with CommDebugMode() as back:
            output.sum().backward()
    finally:
        dist.destroy_process_group()
    assert (there.get_total_counts(), back.get_total_counts()) == (forward, backward)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
def test_targets_that_read_nothing_remote_or_queries_are_computed_while_rows_are_on_their_way(
    overlap, monkeypatch
):
    monkeypatch.setattr("graphattn.distributed.shards.agree", lambda *_: None)
    monkeypatch.setattr(Processes, "gathered", lambda self, fact: [fact] * 8)
    monkeypatch.setattr(
        Processes, "ids", lambda self, ids, splits: (torch.arange(len(ids)), splits)
    )
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    try:
        mine = shard(ga.graphs.sliding_window(800, 65, causal=False), plan="halo", overlap=overlap)
        x, layer, orders = (
            torch.randn(100, 8, 4, requires_grad=True),
            ga.nn.GraphAttention(32, 8),
            [],
        )
        for call in (
            lambda: ga.attention(x, x.clone(), x.clone(), mine),
            lambda: layer(x.flatten(1), mine),
        ):
            with Traffic() as forward:
                output = call()
            with Traffic() as backward:
                output.sum().backward()
            orders += [forward.order, backward.order]
    finally:
        dist.destroy_process_group()
    between = [{*order[order.index("sent") + 1 : order.index("arrived")]} for order in orders]
    assert between == ([{"edges"}, {"edges"}, {"product"}, {"product"}] if overlap else [set()] * 4)


@pytest.mark.slow
def test_broken_exchanges_are_seen():
    rows = ranks.verdicts("mutants.py", 2)
    wanted = {  # forward as it is (halo, queries), gradients (halo, queries), another graph refused
        "none": (True, True, True, True, True),
        "a row dropped": (False, False, False, False, True),
        "two rows swapped": (False, False, False, False, True),
        "gradient not scattered": (True, True, False, False, True),
        "a mean for a sum": (True, True, False, False, True),
        "no fingerprint": (True, True, True, True, False),
        "parts merged evenly": (True, False, True, False, True),
    }
    for name, (*right, refused) in wanted.items():
        told = [list(map(bool, rows[f"{plan}, {name}"]["verdict"])) for plan in ("halo", "queries")]
        assert [told[0][0], told[1][0], told[0][1], told[1][1]] == right, (name, told)
        assert told[0][2] == told[1][2] == refused
    # of all nodes, and of those of the first process alone
    assert rows["mean"]["verdict"] == [48.0, 10.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "another version",
            "but the version of graphattn of process 1 differ from those of the others: 0.0.1, not",
        ),
        ("ends", "could not exchange rows: another has ended, or was later than the timeout"),
        ("is late", "could not exchange rows: another has ended, or was later than the timeout"),
    ],
)
def test_every_process_ends_in_time_and_says_why(what, said):
    lines = ranks.launch("faults.py", 3, what, timeout=60, group_timeout=4)
    told = ["\n".join(of_rank) for of_rank in lines]
    assert not any("outlasted" in words or "\nran" in words for words in told), told
    speak = [words for rank, words in enumerate(told) if what == "another version" or rank != 1]
    assert all(said in words and "ProcessError" in words for words in speak), told


def test_rows_of_halves_are_summed_in_float32():
    x = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    grads = (torch.arange(400) % 7).to(torch.bfloat16).unsqueeze(1).expand(400, 3)
    exchange = RequestedRows(Processes(), torch.zeros(400, dtype=torch.long), [400], [400], 2)
    (grad,) = torch.autograd.grad(exchange(x), x, grads)
    assert torch.equal(grad[0], grads.float().sum(0).to(torch.bfloat16))
    in_halves = torch.zeros(3, dtype=torch.bfloat16)
    for row in grads:
        in_halves = in_halves + row
    assert not torch.equal(grad[0], in_halves)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_twenty_steps_of_ddp_and_fsdp_are_those_of_one_process(processes):
    rows = ranks.verdicts("training.py", processes)
    assert len(rows) == (8 if processes == 2 else 4)
    for name, row in rows.items():
        assert row["output"] < 1e-12, (name, row)
        assert max(row["losses"], row["parameters"]) < 1e-9, (name, row)
        assert row["fall"] < 0.95


@pytest.mark.slow
def test_a_state_of_three_processes_is_read_by_two(tmp_path):
    first = "import graphattn as ga, torch.distributed.checkpoint.state_dict; ga.models"
    run = partial(ranks.verdicts, "checkpoint.py", first=first)
    whole, rest = (run(processes, str(tmp_path))["losses"] for processes in (3, 2))
    assert (whole["begin"], rest["begin"]) == (0, 3)
    assert (tmp_path / "latest").read_text("utf-8") == "step_00000003"
    assert max(abs(a - b) for a, b in zip(whole["losses"][3:], rest["losses"], strict=True)) < 1e-9
    assert whole["losses"][0] - rest["losses"][0] > 1e-3
