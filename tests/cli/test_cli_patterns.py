"""Patterns: typed options give the graph that the builder gives, and new builders need no change."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from graphattn import graphs
from graphattn.cli.names import NAMES, PATTERNS
from graphattn.cli.what import item
from graphattn.graph import AttentionGraph
from graphattn.graph.facts import facts
from graphattn.graphs import BUILDERS

POINTS = np.random.default_rng(7).random((13, 3))
TYPED = [
    ("full --size 7", graphs.full(7)),
    ("full --num-nodes 7", graphs.full(7)),
    ("self_loops --size=5", graphs.self_loops(5)),
    ("causal --size 1_009", graphs.causal(1009)),
    ("causal --size 5 --num-sources 11 --align start", graphs.causal(5, 11, align="start")),
    ("prefix --size 13 --prefix 3", graphs.prefix(13, 3)),
    ("sliding_window --size 17 --window 5", graphs.sliding_window(17, 5)),
    ("window --dilation 3 --size 17 --no-causal --window 5", graphs.sliding_window(17, 5, causal=False, dilation=3)),
    ("sliding-window --size 17 --window 5 --causal no", graphs.sliding_window(17, 5, causal=False)),
    ("asymmetric_window --size 7 --left 3 --right 1", graphs.asymmetric_window(7, 3, 1)),
    ("sinks --size 13 --k 4", graphs.sinks(13, 4)),
    ("logsparse --size 13", graphs.logsparse(13)),
    ("strided --size 13 --stride 3", graphs.strided(13, 3)),
    ("fixed --size 13 --stride 3 --summary 2", graphs.fixed(13, 3, 2)),
    ("block_local --size 13 --block 3 --look-back 1 --causal", graphs.block_local(13, 3, look_back=1, causal=True)),
    ("block_causal --size 13 --block 3", graphs.block_causal(13, 3)),
    ("block_diffusion --size 7 --block 3", graphs.block_diffusion(7, 3)),
    ("documents --lengths 2,3,7 --causal", graphs.documents(lengths=(2, 3, 7), causal=True)),
    ("documents --lengths 5,", None),
    ("documents --ids 0,2,2,0,1", graphs.documents(torch.tensor([0, 2, 2, 0, 1]))),
    ("bidirectional_segments --segments=-1,0,0,-1", graphs.bidirectional_segments(torch.tensor([-1, 0, 0, -1]))),
    ("ranked --ranks 2,0,1 --strict", graphs.ranked(torch.tensor([2, 0, 1]), strict=True)),
    ("random_sources --size 11 --k 3 --graph-seed 5", graphs.random_sources(11, 3, 5)),
    ("erdos_renyi --size 11 --probability .3 --no-listed", graphs.erdos_renyi(11, 0.3, listed=False)),
    ("top_k --scores cloud.npy --k 2", graphs.top_k(torch.from_numpy(POINTS), 2)),
    ("lsh_buckets --buckets 0,1,0,1,1 --chunk 2", graphs.lsh_buckets(torch.tensor([0, 1, 0, 1, 1]), 2)),
    (
        "cross_documents --target-ids 0,1 --source-ids 1,1",
        graphs.cross_documents(torch.tensor([0, 1]), torch.tensor([1, 1])),
    ),
    ("global_tokens --size 11 --tokens 0,7", graphs.global_tokens(11, (0, 7))),
    ("global_tokens --size 11 --tokens 3", graphs.global_tokens(11, (3,))),
    ("cross --size 5 --num-sources 7", graphs.cross(5, 7)),
    ("cell_partition --size 6x10 --cell 3x5 --shift 1x2", graphs.cell_partition((6, 10), (3, 5), (1, 2))),
    ("swin --size 7,11 --cell 3 --pad", graphs.cell_partition((7, 11), (3, 3), pad=True)),
    ("grid_neighbourhood --size 7x11 --kernel 3x5", graphs.grid_neighbourhood((7, 11), (3, 5))),
    (
        "natten --size 7x11 --kernel 3 --causal yes,no --no-clamp --dilation 1x2",
        graphs.grid_neighbourhood((7, 11), 3, causal=(True, False), clamp=False, dilation=(1, 2)),
    ),
    ("swin --size 7x11 --cell 4 --read-padding", graphs.cell_partition((7, 11), 4, read_padding=True)),
    ("cell_pooling --size 6x10 --cell 3x5", graphs.cell_pooling((6, 10), (3, 5))),
    ("halo --size 6x10 --cell 3x5 --halo 1x2 --read-padding", graphs.halo((6, 10), (3, 5), (1, 2), read_padding=True)),
    ("natten --size 7x12 --kernel 5 --stride 1x4", graphs.grid_neighbourhood((7, 12), 5, stride=(1, 4))),
    ("grid_ball --size 7x11 --radius 2.5 --p inf --strict", graphs.grid_ball((7, 11), 2.5, p=np.inf, strict=True)),
    ("natten --causal --size 13 --kernel 5", graphs.grid_neighbourhood((13,), (5,), causal=True)),
    ("knn --pos cloud.npy --k 3 --include-self", graphs.knn(torch.from_numpy(POINTS), 3, include_self=True)),
    (
        "radius --pos cloud.npy --radius 0.5 --max-neighbours 2 --overflow nearest",
        graphs.radius(torch.from_numpy(POINTS), 0.5, max_neighbours=2, overflow="nearest"),
    ),
    ("radius --pos cloud.npy --r 0.5", graphs.radius(torch.from_numpy(POINTS), 0.5)),
    ("knn --pos cloud.npy --k 3 --dilation 2", graphs.knn(torch.from_numpy(POINTS), 3, dilation=2)),
    ("ball_query --pos cloud.npy --radius 0.5 --k 3", graphs.ball_query(torch.from_numpy(POINTS), 0.5, 3)),
    (
        "curve_patches --pos cloud.npy --patch 5 --curve hilbert-trans --cell 0.1",
        graphs.curve_patches(torch.from_numpy(POINTS), 5, "hilbert-trans", cell=0.1),
    ),
    (
        "octree_windows --pos cloud.npy --window 3 --dilation 2 --graph-batch 0,0,0,0,0,0,0,1,1,1,1,1,1",
        graphs.octree_windows(torch.from_numpy(POINTS), 3, dilation=2, batch=torch.arange(13) // 7),
    ),
    (
        "voxel_windows --pos cloud.npy --window 0.5,0.3,1 --shift 0.1",
        graphs.voxel_windows(torch.from_numpy(POINTS), (0.5, 0.3, 1.0), shift=0.1),
    ),
    (
        "stratified_windows --pos cloud.npy --window 0.3 --sampled 0,7,9",
        graphs.stratified_windows(torch.from_numpy(POINTS), 0.3, torch.tensor([0, 7, 9])),
    ),
    ("clusters --ids 0,2,2,0,-1", graphs.clusters(torch.tensor([0, 2, 2, 0, -1]))),
    ("mesh_vertices --faces square.off --hops 2", graphs.mesh_vertices(torch.tensor([[0, 1, 2, 3]]), hops=2)),
    ("mesh_faces --faces square.off --self-loops", graphs.mesh_faces(torch.tensor([[0, 1, 2, 3]]), self_loops=True)),
    ("tree --parent -1,0,0,1 --read parent", graphs.tree(torch.tensor([-1, 0, 0, 1]), read="parent")),
    ("ancestors --parent -1,0,0,1", graphs.ancestors(torch.tensor([-1, 0, 0, 1]))),
    ("siblings --parent -1,0,0,1 --no-self-loops", graphs.siblings(torch.tensor([-1, 0, 0, 1]), self_loops=False)),
    ("circulant --size 11 --offsets -1,0,3", graphs.circulant(11, (-1, 0, 3))),
    ("butterfly --size 11 --block 2 --strides 1,4", graphs.butterfly(11, 2, strides=(1, 4))),
    ("hierarchical --size 11 --block 2 --causal", graphs.hierarchical(11, 2, causal=True)),
    ("expander --size 23 --permutations 2 --graph-seed 5", graphs.expander(23, 2, 5)),
    ("random_regular --size 12 --degree 3", graphs.random_regular(12, 3)),
    ("small_world --size 11 --k 4 --probability .2", graphs.small_world(11, 4, 0.2)),
    ("mesh_edges --faces square.off --hops 2", graphs.mesh_edges(torch.tensor([[0, 1, 2, 3]]), 2)),
    (
        "geodesic_ball --pos square.off --faces square.off --radius 1",
        graphs.geodesic_ball(torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1]]), torch.tensor([[0, 1, 2, 3]]), 1.0),
    ),
    (
        "hypergraph --node 0,1,2,2 --hyperedge 0,0,0,1 --num-nodes 5",
        graphs.hypergraph(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 0, 1]), 5),
    ),
    (
        "between_types --types 0,0,1 --source 0 --target 1",
        graphs.between_types(torch.tensor([0, 0, 1]), 0, 1),
    ),
]
TYPED = [(words, graph) for words, graph in TYPED if graph is not None]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("cloud.npy", POINTS)
    (tmp_path / "square.off").write_text("OFF\n4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n")


@pytest.mark.parametrize(("words", "graph"), TYPED, ids=[words for words, _ in TYPED])
def test_typed_options_give_the_builders_graph(folder, words, graph):
    what, *options = words.split()
    found = item(what, options).graph
    assert found.equals(graph)
    assert found.name == graph.name


def test_every_builder_is_typed_above():
    assert {words.split()[0].replace("-", "_") for words, _ in TYPED} == set(NAMES)


def test_the_names_in_help_are_the_builders():
    assert list(PATTERNS) == list(BUILDERS)
    assert NAMES["swin"] == "cell_partition"
    assert len(NAMES) == sum(1 + len(others) for others in PATTERNS.values())


def test_show(shell):
    graph = graphs.sliding_window(11, 3)
    done = shell("show sliding_window --size 11 --window 3")
    assert done.exit_code == 0
    assert done.stderr == ""
    drawn, _, table = str(done.stdout).partition("\n\ntargets")
    assert drawn.replace("\n\n", "\n", 1) == str(graph)
    assert "edges              30\n" in table
    assert shell.json("show sliding_window --size 11 --window 3") == {
        "command": "show",
        "what": "sliding_window",
        "graph": repr(graph),
        "name": graph.name,
        "facts": facts(graph).to_dict(),
        "drawing": str(graph).splitlines()[1:],
        "notes": [],
        "picture": None,
        "edges": None,
    }


def test_show_of_a_graph_too_large_for_facts_says_so(shell):
    found = shell.json("show causal --size 100000000")
    assert found["facts"] is None
    assert "100,000,000 nodes" not in found["notes"][0]
    assert "200,000,000 nodes" in found["notes"][0]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_show_writes_a_picture(shell, tmp_path, ending):
    out = tmp_path / f"swin.{ending}"
    done = shell(f"show swin --size 6x10 --cell 3x5 --out {out}")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"picture: {out}\n")
    assert out.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "graph"),
    [
        ("natten --size 7x11 --kernel 3x5", graphs.grid_neighbourhood((7, 11), (3, 5))),
        ("cross --size 3 --num-sources 5", graphs.cross(3, 5)),
    ],
)
def test_saved_edges_are_the_graph(shell, tmp_path, words, graph):
    out = tmp_path / "edges.npz"
    found = shell.json(f"show {words} --save {out}")
    assert (found["edges"], found["notes"]) == (str(out), [])
    assert item(str(out), []).graph.equals(graph)
    done = shell(f"show {words} --save {tmp_path / 'edges.csv'}")
    again = re.search("note: the edges read again: graphattn show (.*)\n", done.stdout)[1]
    what, *options = again.split()
    assert item(what, options).graph.equals(graph)
    assert done.stdout.endswith("edges.csv\n")


def test_explain(shell):
    done = shell("explain causal --size 1000000 --heads 6 --kv-heads 3 --head-dim 32 --return-weights")
    assert done.exit_code == 0
    assert "backend: " in done.stdout
    assert " h forward" in shell("explain full --size 1000000").stdout
    found = shell.json("explain causal --size 1000003")
    assert found["graph"] == repr(graphs.causal(1_000_003))
    refused = {c["backend"]: c["reasons"] for c in found["candidates"]}["message_passing"]
    assert "bytes" in refused[0]


def test_explain_passes_every_option_on(shell, monkeypatch):
    seen = {}

    def explain(graph, **options):
        seen.update(options)
        raise ValueError("enough")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(sys.modules["graphattn.attention"], "explain", explain)  # a function hides the module
    line = "--heads 6 --kv-heads 3 --head-dim 5 --value-dim 7 --batch 11 --dtype bfloat16 --device cuda:1"
    flags = "--score-bias --softcap --dropout --return-weights --return-lse --edge-features"
    shell(f"explain full --size 2 {line} {flags}")
    names = ("score_bias", "softcap", "dropout_p", "return_weights", "return_lse", "edge_attr")
    sizes = {"heads": 6, "kv_heads": 3, "head_dim": 5, "value_dim": 7, "batch": 11}
    assert seen == {**sizes, "dtype": torch.bfloat16, "device": "cuda:1", **dict.fromkeys(names, True)}


def test_verify_of_an_exact_graph(shell):
    done = shell("verify swin --size 6x10 --cell 3x5 --shift 1x2 --heads 6 --kv-heads 3 --seed 5")
    assert done.exit_code == 0, done.output
    assert "6 heads on 3" in done.stdout
    assert "EXACT" in done.stdout
    found = shell.json("verify window --size 7 --window 3")
    assert found["ok"] is True
    assert found["rows"]


def test_verify_of_a_broken_backend_exits_with_1(shell, monkeypatch):
    from graphattn.backends.dense import DenseBackend

    honest = DenseBackend.run

    def lying(self, graph, inputs, **wanted):
        found = honest(self, graph, inputs, **wanted)
        return type(found)(found.output * 1.001, found.alpha, found.lse)

    monkeypatch.setattr(DenseBackend, "run", lying)
    done = shell("verify window --size 7 --window 3")
    assert done.exit_code == 1
    assert "NOT EXACT" in done.stdout
    found = shell.json("verify window --size 7 --window 3", status=1)
    assert found["ok"] is False
    wrong = shell.json("doctor", status=1)
    assert {check["backend"]: check["ok"] for check in wrong["self_check"]}["dense"] is False
    assert wrong["ok"] is False


def test_doctor(shell):
    found = shell.json("doctor")
    assert found["versions"]["torch"] == torch.__version__
    assert found["extras"]["plot"]["matplotlib"]
    assert all(check["ok"] for check in found["self_check"])
    done = shell("doctor")
    assert done.exit_code == 0
    assert done.stdout.endswith("all is well\n")


def test_doctor_says_where_compiled_code_is_kept(shell, tmp_path):
    cache = shell.json("doctor")["cache"]
    assert Path(cache["path"]).is_dir()
    assert cache["functions"] > 0 < cache["bytes"]
    assert shell.json("doctor")["versions"]["numba"]
    shown = " ".join(shell("doctor").stdout.split())
    assert f"{cache['functions']} functions" in shown
    assert "5 s backward for each pair of head widths" in shown
    code = "from graphattn.cli.doctor import _cache; print(_cache())"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    elsewhere = ast.literal_eval(done.stdout)
    assert Path(elsewhere["path"]).is_relative_to(tmp_path)
    assert elsewhere["functions"] == 0


def test_doctor_says_how_to_get_what_is_missing(shell, monkeypatch):
    from importlib import metadata

    real = metadata.version

    def version(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = shell.json("doctor")
    assert found["extras"]["plot"] == {"matplotlib": None}
    assert "pip install 'graphattn[plot]' brings matplotlib" in found["advice"]


def test_a_new_builder_needs_its_name_alone(shell, monkeypatch):
    def scattered(
        size: tuple[int, int], share: float, seed: int = 3, mode: Literal["a", "b"] = "a", *, loops: bool = True
    ) -> AttentionGraph:
        """Scattered edges.

        Args:
            size: Two numbers.
            share: What
                is kept.
        """
        assert (size, share, seed, mode, loops) == ((5, 7), 0.25, 11, "b", False)
        return graphs.full(35)

    monkeypatch.setitem(BUILDERS, "scattered", scattered)
    monkeypatch.setitem(NAMES, "scattered", "scattered")
    done = shell("show scattered --size 5x7 --share .25 --graph-seed 11 --mode b --no-loops")
    assert done.exit_code == 0, done.output
    page = " ".join(shell("show scattered --help").stdout.split())
    assert "--size NxN --share X [--graph-seed N] [--mode a|b] [--no-loops]" in page
    assert "What is kept." in page
    assert "--size must be 2 whole numbers such as 3x5, got '5x7x2'" in shell.error("show scattered --size 5x7x2")
