"""Rates: measured, kept for this machine alone, and used by the choice of backends."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import graphattn as ga
from graphattn.backends import rates
from graphattn.cli.app import app


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHATTN_CACHE", str(tmp_path))
    yield tmp_path / "rates.json"
    rates._kept.cache_clear()


def test_what_is_kept_is_used_and_nothing_else(cache):
    assert rates.rates() == rates.Rates()
    dear = replace(rates.Rates(), tiles=9.0, edges=9.0, dense_call=1e-3)
    assert rates.keep(dear, "today") == cache
    assert rates.rates() == dear
    assert rates.measured()
    assert ga.explain(ga.graphs.sliding_window(4096, 257, causal=False)).chosen == "dense"
    kept = json.loads(cache.read_text())
    for spoil in ({"machine": {}}, {"rates": {**kept["rates"], "edges": -1}}, {"rates": {}}):
        cache.write_text(json.dumps({**kept, **spoil}))
        rates._kept.cache_clear()
        assert rates.rates() == rates.Rates()
    cache.write_text("not json")
    rates._kept.cache_clear()
    assert not rates.measured()


def test_the_command_measures_and_keeps(cache):
    found = CliRunner().invoke(app, ["doctor", "--calibrate", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert json.loads(cache.read_text())["rates"] == told["rates"]
    assert all(value > 0 for value in told["rates"].values())
    assert rates.rates() == rates.Rates(**told["rates"])


@pytest.mark.usefixtures("cache")
def test_the_choice_weighs_edges_against_tiles():
    request = {"heads": 4, "head_dim": 32}
    assert ga.explain(ga.graphs.full(2048), **request).chosen == "dense"
    assert ga.explain(ga.graphs.causal(2048), **request).chosen == "dense"
    assert ga.explain(ga.graphs.sliding_window(4096, 257, causal=False), **request).chosen == "tiles"
    assert ga.explain(ga.graphs.sliding_window(4096, 17, causal=False), **request).chosen == "edges"
