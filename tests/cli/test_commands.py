"""graphattn show, explain and verify."""

import importlib
import re

import pytest
import torch

from graphattn import graphs
from graphattn.analysis.facts import counted
from graphattn.cli.what import item


def test_show(shell):
    graph = graphs.sliding_window(11, 3, causal=True)
    done = shell("show 'sliding_window(11, 3, causal=True)'")
    assert (done.exit_code, done.stderr) == (0, "")
    drawn, _, table = str(done.stdout).partition("\n\ntargets")
    assert drawn.replace("\n\n", "\n", 1) == str(graph)
    assert "edges              30\n" in table
    assert shell.json("show 'sliding_window(11, 3, causal=True)'") == {
        "command": "show",
        "what": "sliding_window(11, 3, causal=True)",
        "graph": repr(graph),
        "name": graph.name,
        "facts": counted(graph),
        "drawing": str(graph).splitlines()[1:],
        "notes": [],
        "picture": None,
        "edges": None,
    }


def test_show_of_a_graph_too_large_for_facts_says_so(shell):
    shown = shell.json("show 'causal(100000000)'")
    assert shown["facts"] is None
    assert "200,000,000 nodes" in shown["notes"][0]


@pytest.mark.parametrize("ending", ["png", "svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_show_writes_a_picture(shell, tmp_path, ending):
    out = tmp_path / f"swin.{ending}"
    done = shell(f"show 'window_partition((6, 10), (3, 5))' --out {out}")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"picture: {out}\n")
    assert out.stat().st_size > 1000


def test_a_picture_of_a_named_pattern_says_its_name(shell, tmp_path):
    out = tmp_path / "picture.svg"
    assert shell(f"show BigBird --out {out}").exit_code == 0
    assert "BigBird: block_sparse" in out.read_text("utf-8")


def test_a_picture_is_drawn_where_the_nodes_are(shell, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    seen = {}
    monkeypatch.setattr(
        "graphattn.viz.plot", lambda graph, **places: seen.update(places) or Figure()
    )
    (tmp_path / "p.xyz").write_text("0 0 0\n1 0 0\n0 1 0\n", encoding="utf-8")
    assert shell(f"show 'knn(load(\"{tmp_path}/p.xyz\"), 1)' --out {tmp_path}/p.png").exit_code == 0
    assert seen["pos"].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "what",
    [
        "grid_neighbourhood((7, 11), (3, 5), causal=False)",
        "cross(3, 5)",
        "ball_query(sphere, 0.5, 9)",
    ],
)
@pytest.mark.parametrize("ending", ["npz", "csv", "json", "safetensors"])
def test_a_saved_graph_is_the_graph(shell, tmp_path, what, ending):
    out = tmp_path / f"saved.{ending}"
    graph = item(what).graph
    done = shell(f"show '{what}' --save {out}")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"saved: {out}\n")
    again = re.search("note: read it again: graphattn show '(.*)'\n", done.stdout)
    assert (again is None) == (
        ending in ("json", "safetensors") or (ending == "npz" and not graph.has_repeated_edges)
    )
    assert item(again[1] if again else str(out)).graph.equals(graph)


def test_explain(shell):
    done = shell("explain 'causal(1000000)' --heads 6 --kv-heads 3 --head-dim 32")
    assert done.exit_code == 0
    assert "backend: " in done.stdout
    assert "call: batch 1, 6 heads on 3 of 32, float32 on cpu\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("rates: built in; graphattn doctor --calibrate ")
    assert done.stdout.splitlines()[-1].endswith(f"; threads: {torch.get_num_threads()}")
    assert "8 heads of 64, bfloat16 on cpu" in shell("explain 'full(9)' --dtype bfloat16").stdout
    assert " h forward" in shell("explain 'full(1000000)'").stdout
    explained = shell.json("explain 'causal(1000003)'")
    assert explained["graph"] == repr(graphs.causal(1_000_003))
    refused = {c["backend"]: c["reasons"] for c in explained["candidates"]}["message_passing"]
    assert "bytes" in refused[0]


def test_explain_passes_every_option_on(shell, monkeypatch):
    seen = {}

    def explain(graph, **options):
        seen.update(options)
        raise ValueError("enough")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(importlib.import_module("graphattn.functional"), "explain", explain)
    line = "--heads 6 --kv-heads 3 --head-dim 5 --batch 7 --dtype bfloat16 --device cuda:1"
    shell(f"explain 'full(2)' {line}")
    assert seen == {
        "heads": 6,
        "kv_heads": 3,
        "head_dim": 5,
        "batch": 7,
        "dtype": torch.bfloat16,
        "device": "cuda:1",
    }


def test_verify_of_an_exact_graph_and_of_a_broken_backend(shell, monkeypatch):
    from graphattn.backends.dense import DenseBackend

    assert shell.json("verify 'sliding_window(7, 3, causal=True)'")["ok"] is True
    honest = DenseBackend.run

    def lying(self, graph, inputs, **wanted):
        result = honest(self, graph, inputs, **wanted)
        return type(result)(result.output * 1.001, result.alpha, result.lse)

    monkeypatch.setattr(DenseBackend, "run", lying)
    done = shell("verify 'sliding_window(7, 3, causal=True)'")
    assert done.exit_code == 1
    assert "NOT EXACT" in done.stdout
    wrong = shell.json("doctor", status=1)
    assert {check["backend"]: check["ok"] for check in wrong["self_check"]}["dense"] is False
    assert wrong["ok"] is False
