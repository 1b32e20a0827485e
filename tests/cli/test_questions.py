"""graphattn facts and graphattn audit give what the library gives."""

from importlib import import_module

import numpy as np

import graphattn as ga


def test_facts_of_a_pattern(shell, monkeypatch):
    facts = shell.json("facts 'sliding_window(40, 5, causal=False)'")
    graph = ga.graphs.sliding_window(40, 5, causal=False)
    assert facts["facts"] == ga.facts(graph).to_dict()
    assert facts["facts"]["hops"] == 20
    assert facts["tiles"]["touched"] == 1
    text = shell("facts 'grid_neighbourhood((30, 40), 5, causal=False)'").stdout
    assert "strong components     1\n" in text
    assert "each then depends on  every node\n" in text
    assert "no spectral gap, conductance, mean resistance: more than 512 nodes" in text
    assert "boxes of the grid" in text
    monkeypatch.setattr(import_module("graphattn.analysis.tile_fill"), "_MOST_TILES", 0)
    assert "no tiles: tile_fill would take" in shell("facts 'causal(40)'").stdout
    assert shell.json("facts 'causal(40)'")["tiles"] is None


def test_facts_of_layers(shell):
    text = shell(
        "facts 'sliding_window(8, 3, causal=True); full(8); sliding_window(8, 3, causal=True)'"
    ).stdout
    assert "  0  AttentionGraph(sliding_window(8, 3, causal=True)" in text
    assert "  layers 0, 2  " in text
    assert "  layer 1\n" in text
    assert "after 3 layers a target depends on 8 of 8 sources" in text
    facts = shell.json("facts 'sliding_window(8, 3, causal=True); full(8)'")
    assert facts["facts"]["each"][1] == ga.facts(ga.graphs.full(8)).to_dict()
    assert "the targets of a layer are the sources of the next" in shell.error(
        "facts 'causal(8); causal(9)'"
    )
    assert "no layer stands between the semicolons of ' ; '" in shell.error("facts ' ; '")


def test_the_budget_that_facts_names_is_enough(shell, tmp_path):
    path = tmp_path / "far.csv"
    np.savetxt(path, np.random.default_rng(0).integers(0, 1031, (2500, 2)), "%d", ",")
    line = f"""facts 'load("{path}", duplicates="merge")' --budget"""
    assert "try budget=800, or ask" in shell(f"{line} 100").stdout
    assert "no hops" not in shell(f"{line} 100000000").stdout


def test_audit_of_a_mask(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mask = np.tri(8, dtype=bool)
    np.save("right.npy", mask)
    mask[4:6, 6] = True
    np.save("wrong.npy", mask)
    assert shell("audit 'causal(8)' --mask right.npy").stdout.startswith("ok: all 64 entries")
    wrong = shell("audit 'causal(8)' --mask wrong.npy")
    assert wrong.exit_code == 1
    assert "6 -> 4, 6 -> 5" in wrong.stdout
    assert shell.json("audit 'causal(8)' --mask wrong.npy", status=1)["too_many"] == 2
    assert "mask must have 9 targets" in shell.error("audit 'causal(9)' --mask right.npy")
    assert "try budget=128" in shell.error("audit 'causal(8)' --mask right.npy --budget 4")
