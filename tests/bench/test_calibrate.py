"""Rates: measured, kept for this machine alone, and used by the choice of backends."""

import json

import pytest
import torch
from typer.testing import CliRunner

import graphattn as ga
from graphattn.backends import BACKENDS, rates
from graphattn.backends.request import Request
from graphattn.bench.calibrate import calibrate
from graphattn.cli.app import app
from graphattn.errors import OptionError

BUILT_IN = {name: backend.built_in() for name, backend in BACKENDS.items() if backend.problems()}


def used():
    return {name: BACKENDS[name].rates() for name in BUILT_IN}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHATTN_CACHE", str(tmp_path))
    yield tmp_path / "rates.json"
    rates._read_rates.cache_clear()


def test_what_is_kept_is_used_and_nothing_else(cache):
    assert used() == BUILT_IN
    assert not rates.measured()
    dear = {"tiles": {"blocks": 9.0}, "edges": {"edge": 9.0}, "dense": {"call_ms": 1e-3}}
    assert rates.keep(dear, "today") == cache
    assert used() == {
        name: {**built_in, **dear.get(name, {})} for name, built_in in BUILT_IN.items()
    }
    assert rates.measured()
    assert ga.explain(ga.graphs.sliding_window(4096, 257, causal=False)).chosen == "dense"
    kept = json.loads(cache.read_text("utf-8"))
    for spoil in (
        {"machine": {}},
        {"rates": {**kept["rates"], "edges": {"edge": -1}}},
        {"rates": {"edges": -1}},
        {"rates": {}},
    ):
        cache.write_text(json.dumps({**kept, **spoil}), encoding="utf-8")
        rates._read_rates.cache_clear()
        assert used() == BUILT_IN
    cache.write_text("not json", encoding="utf-8")
    rates._read_rates.cache_clear()
    assert not rates.measured()


def test_rates_of_a_gpu_are_its_own(cache, monkeypatch):
    edges, request = BACKENDS["edges"], Request(dtype=torch.float16, device=torch.device("cuda"))
    built_in = edges.rates("cuda")
    tiles = BACKENDS["tiles"].work_ms(request, "fused", 1e6)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    dear = {"edges": {"byte": 9.0}, "tiles": {"fused, halves": 0.125}}
    assert rates.keep(dear, "today", "cuda").name == "rates-cuda.json"
    assert edges.rates("cuda") == {**built_in, "byte": 9.0}
    assert edges.rates() == edges.built_in()
    assert BACKENDS["tiles"].work_ms(request, "fused", 1e6) == tiles / 2
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another")
    rates._read_rates.cache_clear()
    assert edges.rates("cuda") == built_in


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_measured():
    with pytest.raises(OptionError, match="device must be an available device"):
        calibrate(device="cuda")
    found = CliRunner().invoke(app, ["doctor", "--calibrate", "--device", "cuda"])
    assert found.exit_code == 2
    assert "device must be an available device" in found.output
    assert (
        "what --calibrate measures"
        in CliRunner().invoke(app, ["doctor", "--device", "cuda"]).output
    )


@pytest.mark.slow
def test_the_command_measures_and_keeps(cache, monkeypatch):
    monkeypatch.setattr("graphattn.bench.calibrate.WIDTH", 8)  # another one is compiled anew
    found = CliRunner().invoke(app, ["doctor", "--calibrate", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert json.loads(cache.read_text("utf-8"))["rates"] == told["rates"]
    assert all(value > 0 for measured in told["rates"].values() for value in measured.values())
    others = {"fused"}  # without a compiler
    assert {name: measured.keys() for name, measured in told["rates"].items()} == {
        name: built_in.keys() - others for name, built_in in BUILT_IN.items()
    }
    for name, measured in told["rates"].items():
        assert used()[name] == BUILT_IN[name] | measured


@pytest.mark.usefixtures("cache")
def test_the_choice_weighs_edges_against_tiles():
    request = {"heads": 4, "head_dim": 32}
    assert ga.explain(ga.graphs.full(64), **request).chosen == "dense"
    assert ga.explain(ga.graphs.full(2048), **request).chosen == "tiles"
    assert ga.explain(ga.graphs.causal(2048), **request).chosen == "tiles"
    assert (
        ga.explain(ga.graphs.sliding_window(4096, 1025, causal=False), **request).chosen == "tiles"
    )
    assert ga.explain(ga.graphs.sliding_window(4096, 9, causal=False), **request).chosen == "edges"
