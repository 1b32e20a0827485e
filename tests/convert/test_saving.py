"""Graphs that travel: through JSON, safetensors, a configuration and a checkpoint they come back
equal.
"""

import copy
import json
import os
import pickle
import stat
import sys
from functools import wraps
from pathlib import Path

import fresh_python
import pytest
import torch
from graph_table import GRAPHS
from torch import nn
from torch.utils.data import DataLoader

import graphattn as ga
from graphattn.convert import graph_from_dict, graph_to_dict
from graphattn.errors import GraphError, LoaderError
from graphattn.graph.deferred import expression
from graphattn.graph.saving.pickles import reduced
from graphattn.models.images.swin_stage import window_patterns

ZOO = {name: named.graph() for name, named in ga.graphs.zoo().items()}
EVERY = {**{name: build() for name, build in GRAPHS.items()}, **ZOO}
WINDOW, HUB = ga.graphs.sliding_window(7, 3, causal=True), ga.graphs.global_tokens(7, (2,))
LISTED = ga.from_edge_index(torch.tensor([[5, 0, 1, 2], [2, 3, 2, 5]]), num_nodes=7, name="mine")
GOLDEN = Path(__file__).parent / "saved_graphs_3.json"


def through_file(value, path):
    ga.save(value, path)
    return ga.load(path)


def through_checkpoint(value, path):
    torch.save({"model": {"weight": torch.ones(2)}, "graph": value}, path)
    return torch.load(path, weights_only=True)["graph"]


WAYS = {
    "dict": lambda value, folder: graph_from_dict(
        json.loads(json.dumps(graph_to_dict(value), sort_keys=True))
    ),
    "json": lambda value, folder: through_file(value, folder / "graph.json"),
    "safetensors": lambda value, folder: through_file(value, folder / "graph.safetensors"),
    "checkpoint": lambda value, folder: through_checkpoint(value, folder / "model.pt"),
    "pickle": lambda value, folder: pickle.loads(pickle.dumps(value)),
}


def same(one, other):
    assert (one.num_targets, one.num_sources) == (other.num_targets, other.num_sources)
    assert (one.name, one.is_rule, one.device) == (other.name, other.is_rule, torch.device("cpu"))
    assert torch.equal(one.edge_index, other.edge_index)


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_every_graph_comes_back_with_its_calls(part):
    for graph in list(EVERY.values())[part::3]:
        same(back := WAYS["dict"](graph, None), graph)
        if graph.is_rule and graph.expression is not None:
            assert back.expression.function == graph.expression.function
            assert back.expression.build().equals(graph)


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(len(WAYS)))
def test_every_graph_comes_back_from_a_file(number, tmp_path):
    """Each graph by one way, in turn: all take the form that the test above makes."""
    for graph in list(EVERY.values())[number :: len(WAYS)]:
        same(list(WAYS.values())[number](graph, tmp_path), graph)


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
def test_what_holds_several_graphs_comes_back(way, tmp_path):
    def back(value):
        return WAYS[way](value, tmp_path)

    heads = back(ga.PerHead((WINDOW, WINDOW, LISTED, HUB)))
    assert [graph.name for graph in heads.graphs] == [WINDOW.name, WINDOW.name, "mine", HUB.name]
    assert heads.graphs[0] is heads.graphs[1]
    assert [(group.first, group.last) for group in heads.groups(4)] == [(0, 2), (2, 3), (3, 4)]
    relations = back(ga.graphs.Relations(near=WINDOW, hub=HUB, other=LISTED))
    assert relations.names == ("near", "hub", "other")
    assert torch.equal(
        relations.relation, ga.graphs.Relations(near=WINDOW, hub=HUB, other=LISTED).relation
    )
    pattern = ga.graphs.causal(...)
    layers = back([WINDOW, pattern, ga.PerHead((HUB, LISTED)), WINDOW])
    assert isinstance(layers, list)
    assert layers[0] is layers[3]
    assert layers[1](7).equals(pattern(7))
    same(layers[2].graphs[1], LISTED)


def test_a_list_of_layers_comes_back(tmp_path):
    first, second = through_file([WINDOW, HUB], tmp_path / "layers.json")
    same(first, WINDOW)
    same(second, HUB)


PATTERNS = {
    "longformer": ga.graphs.sliding_window(..., 3, causal=False)
    | ga.graphs.global_tokens(..., (0,)),
    "of two sizes": ga.graphs.causal(..., ..., align="start"),
    "a list, then joined": (LISTED | ga.graphs.causal(...))
    & ga.graphs.sliding_window(..., 2, causal=True),
    "not a list": ~(LISTED | ga.graphs.causal(...)),
    "a list, then a method": (LISTED | ga.graphs.causal(...)).reverse(),
    "beside a graph": (ga.graphs.causal(...) | LISTED) - WINDOW,
    "graph first": LISTED @ ga.graphs.causal(...),
    "methods": (~ga.graphs.causal(...)).reverse().with_self_loops().k_hop(k=2).without_self_loops(),
    "global": ga.graphs.causal(...).with_global_tokens(2),
    "drawn": ga.graphs.random_neighbours(..., 2, avoid=ga.graphs.self_loops(7)),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_come_back(name, way, tmp_path):
    pattern = PATTERNS[name]
    back = WAYS[way](pattern, tmp_path)
    assert repr(back) == repr(pattern)
    same(back(7), pattern(7))


def test_patterns_on_grids_come_back():
    for pattern in (
        *window_patterns(3),
        ga.graphs.window_partition(..., (2, 3)).with_global_tokens(),
    ):
        back = WAYS["dict"](pattern, None)
        assert back.on_grid
        same(back((4, 6)), pattern((4, 6)))


class Model(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.layer, self.graph = ga.nn.GraphAttention(8, 2), graph

    def get_extra_state(self):
        return {"graph": self.graph}

    def set_extra_state(self, state):
        self.graph = state["graph"]


@pytest.mark.parametrize(
    "graph", [WINDOW | LISTED, ga.PerHead((WINDOW, LISTED)), PATTERNS["longformer"]]
)
def test_a_model_keeps_its_graph_in_its_state(graph, tmp_path):
    torch.manual_seed(0)
    model, other, x = Model(graph), Model(None), torch.randn(7, 8)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(other.layer(x, other.graph), model.layer(x, graph))


def test_a_configuration_of_transformers_keeps_a_graph(tmp_path):
    transformers = pytest.importorskip("transformers")
    for graph in (ZOO["BigBird"], LISTED, EVERY["hub"], ZOO["Longformer"]):
        transformers.PretrainedConfig(graph=graph_to_dict(graph)).save_pretrained(tmp_path)
        same(graph_from_dict(transformers.PretrainedConfig.from_pretrained(tmp_path).graph), graph)


@pytest.mark.slow
@pytest.mark.parametrize("imports", ["graphattn, torch", "torch, graphattn"])
def test_a_checkpoint_may_be_the_first_thing_that_is_used(imports, tmp_path):
    torch.save([WINDOW | LISTED, PATTERNS["longformer"]], tmp_path / "graph.pt")
    code = (
        f"import {imports}; print(torch.load({str(tmp_path / 'graph.pt')!r}, "
        "weights_only=True)[0].num_edges)"
    )
    done = fresh_python.run(code, expect=0)
    assert done.stdout.strip() == str((WINDOW | LISTED).num_edges)


def test_a_checkpoint_may_call_nothing_else_of_ours(tmp_path):
    class Hostile:
        def __reduce__(self):
            return ga.from_edge_index, ([[0], [1]],)

    torch.save(Hostile(), tmp_path / "model.pt")
    with pytest.raises(pickle.UnpicklingError, match="from_edge_index"):
        torch.load(tmp_path / "model.pt", weights_only=True)


def test_the_graph_of_a_pickle_is_checked():
    function, (text, tensors) = reduced(WINDOW | LISTED)
    assert function(text, tensors).equals(WINDOW | LISTED)
    for parts in (
        (text, []),
        (text, [tensors[0].float()]),
        ("[]", tensors),
        (text, None),
    ):
        with pytest.raises(LoaderError):
            function(*parts)
    with pytest.raises(LoaderError, match=r"source 5 is outside \[0, 4\)"):
        function(text.replace('"sizes": [7, 7]', '"sizes": [7, 4]'), tensors)


def test_graphs_are_their_own_copies():
    for value in (
        WINDOW,
        LISTED,
        PATTERNS["longformer"],
        ga.PerHead((HUB,)),
        ga.graphs.Relations(a=HUB),
    ):
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value


def test_workers_of_a_loader_send_graphs():
    graphs = [WINDOW, LISTED, WINDOW | LISTED]
    for graph, sent in zip(graphs, DataLoader(graphs, batch_size=None, num_workers=1), strict=True):
        same(sent, graph)


def _halves(target, source):
    return source * 2 <= target


@pytest.mark.slow
def test_a_rule_without_calls_is_saved_by_its_edges(tmp_path):
    graph = ga.from_rule(lambda t, s: s * 2 <= t, 9)
    grown = ga.graphs.self_loops(30)
    for token in range(300):
        grown = grown | ga.graphs.global_tokens(30, (token // 20,))
    for way in WAYS.values():
        same(way(graph, tmp_path), graph)
    same(WAYS["dict"](grown, tmp_path), grown)


def test_a_rule_of_too_many_intervals_is_refused_and_pickled_as_it_was():
    graph = ga.from_rule(_halves, 10**6)
    with pytest.raises(
        GraphError, match=r"too many to be saved; save graph.materialise\(\), or a pattern"
    ):
        graph_to_dict(graph)
    assert pickle.loads(pickle.dumps(graph)).num_targets == 10**6


def test_a_pattern_of_long_arguments_is_refused():
    many = ga.graphs.global_tokens(..., tuple(range(20_000)))
    with pytest.raises(
        GraphError, match="65,536 characters cannot be saved; pass its long arguments as tensors"
    ):
        graph_to_dict(many)


def test_reading_calls_no_builder(monkeypatch):
    data = [
        graph_to_dict(value) for value in (WINDOW | HUB, PATTERNS["beside a graph"], ZOO["BigBird"])
    ]

    def built(*args, **options):
        raise AssertionError("a builder was called")

    for name in ("sliding_window", "causal", "global_tokens", "random_neighbours"):
        monkeypatch.setitem(expression._BUILDERS, name, wraps(expression._BUILDERS[name])(built))
    assert all(graph_from_dict(each) is not None for each in data)


@pytest.mark.parametrize(
    "value", [None, 3, "causal(4)", [], [WINDOW, 3], torch.ones(3, 3).bool(), {}]
)
def test_what_is_no_graph_is_refused(value, tmp_path):
    with pytest.raises(
        GraphError, match=r"graph must be an AttentionGraph, Pattern, .* or list of layers, got"
    ):
        ga.save(value, tmp_path / "graph.json")
    assert not list(tmp_path.iterdir())


def test_a_product_without_closed_form_is_saved_by_its_edges():
    strict = ga.graphs.sliding_window(9, 3, causal=True).without_self_loops()
    far = strict.k_hop(3)
    for graph in (
        far | ga.graphs.self_loops(9),
        (strict @ ga.graphs.sparse_strided(9, 2)) | strict,
        ~far,
    ):
        assert graph.is_rule
        same(WAYS["dict"](graph, None), graph)


def test_a_file_of_this_version_is_read():
    """Written by ``golden()`` below."""
    for line, (name, value) in zip(
        GOLDEN.read_text("utf-8").splitlines(), golden().items(), strict=True
    ):
        found = graph_from_dict(json.loads(line))
        if isinstance(value, ga.AttentionGraph):
            same(found, value)
        else:
            assert repr(found) == repr(value), name


def golden():
    """A value of every kind, with every kind of argument; each is a line of the golden file."""
    far = torch.arange(200).remainder(40).reshape(2, 100)
    return {
        "rule": ga.graphs.sliding_window(64, 9, causal=False, dilation=2)
        | ga.graphs.global_tokens(64, (0, 7)),
        "listed": LISTED,
        "many": ga.from_edge_index(far, num_nodes=40, duplicates="keep"),
        "tensor": ga.graphs.documents(torch.tensor([0, 0, 3, 1, 3]), causal=False)
        - ga.graphs.self_loops(5),
        "array": ga.graphs.voxel_windows(torch.arange(12.0).reshape(6, 2).numpy(), 3.0),
        "nested": ga.graphs.composite(
            ((ga.graphs.full(2), None), (ga.graphs.cross(3, 2), ga.graphs.causal(3)))
        ),
        "mixed": ~(LISTED.reverse() | WINDOW).subgraph([1, 2, 3, 5]),
        "from a function": ga.from_rule(_halves, 5),
        "pattern": PATTERNS["beside a graph"],
        "per head": ga.PerHead((WINDOW, WINDOW, HUB)),
        "relations": ga.graphs.Relations(near=WINDOW, hub=HUB),
        "layers": [WINDOW, ga.graphs.causal(...), WINDOW],
        "list": [WINDOW, ga.PerHead((WINDOW, HUB))],
    }


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_the_earlier_file_survives_a_failure(ending, tmp_path, monkeypatch):
    path = tmp_path / f"graph.{ending}"
    ga.save(WINDOW, path)

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(LoaderError, match="No space left"):
            ga.save(HUB, path)
    same(ga.load(path), WINDOW)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_rights_and_links_stay(tmp_path):
    path, link = tmp_path / "graph.json", tmp_path / "link.json"
    ga.save(WINDOW, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    path.chmod(0o640)
    link.symlink_to(path)
    ga.save(HUB, link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    same(ga.load(path), HUB)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_pipes_devices_and_folders_are_neither_read_nor_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "loop", "device"):
        for use in (ga.load, lambda path: ga.save(WINDOW, path)):
            with pytest.raises(LoaderError):
                use(tmp_path / f"{name}.json")
    for path in ("missing/graph.json", "graph.pt", "graph", "a\0.json"):
        for use in (ga.load, lambda path: ga.save(WINDOW, path)):
            with pytest.raises(LoaderError):
                use(f"{tmp_path}/{path}")
    with pytest.raises(LoaderError, match="str or a Path"):
        ga.load(3)


def test_safetensors_is_optional(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ga.GraphAttnError, match=r"pip install 'graphattn\[hf\]'"):
        ga.save(WINDOW, tmp_path / "graph.safetensors")
    same(WAYS["json"](WINDOW, tmp_path), WINDOW)


def test_what_cannot_be_saved_says_what_can(tmp_path):
    with pytest.raises(LoaderError, match=r"got '.csv'. Try: give the path one of these endings"):
        ga.save(WINDOW, tmp_path / "graph.csv")
    for layers in ([], [[WINDOW]]):
        with pytest.raises(GraphError, match=r"graph must be .* or list of layers, got \["):
            ga.save(layers, tmp_path / "graph.json")
