"""graphattn facts and graphattn audit give what the library gives."""

from importlib import import_module

import numpy as np

import graphattn as ga


def test_facts_of_a_pattern(shell, monkeypatch):
    found = shell.json("facts window --size 40 --window 5 --no-causal")
    graph = ga.graphs.sliding_window(40, 5, causal=False)
    assert found["facts"] == ga.facts(graph).to_dict()
    assert found["facts"]["hops"] == 20
    assert found["tiles"]["touched"] == 1
    text = shell("facts natten --size 30x40 --kernel 5").stdout
    assert "strong components  1" in text
    assert "no spectral gap: more than 512 nodes" in text
    assert "boxes of the grid" in text
    monkeypatch.setattr(import_module("graphattn.questions.tile_fill"), "_MOST_TILES", 0)
    assert "no tiles: tile_fill looks at every tile" in shell("facts causal --size 40").stdout
    assert shell.json("facts causal --size 40")["tiles"] is None


def test_audit_of_a_mask(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mask = np.tri(8, dtype=bool)
    np.save("right.npy", mask)
    mask[4:6, 6] = True
    np.save("wrong.npy", mask)
    assert shell("audit causal --size 8 --mask right.npy").stdout.startswith("ok: all 64 entries")
    wrong = shell("audit causal --size 8 --mask wrong.npy")
    assert wrong.exit_code == 1
    assert "6 -> 4, 6 -> 5" in wrong.stdout
    assert shell.json("audit causal --size 8 --mask wrong.npy", status=1)["too_many"] == 2
    assert "--mask is 8 x 8" in shell.error("audit causal --size 9 --mask right.npy")
    page = shell("audit --help").stdout
    assert "--mask mask.npy" in page
    assert "karate" not in page
