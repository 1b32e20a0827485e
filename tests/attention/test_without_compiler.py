"""An environment in which Numba compiles nothing: "edges" says so, and "auto" runs another
backend.
"""

import os
import subprocess
import sys

import numba
import pytest
from attention_formula import assert_near, tensors

import graphattn as ga
from graphattn.backends import device
from graphattn.errors import BackendError

SCRIPT = """
import torch, graphattn as ga
graph = ga.graphs.sliding_window(4001, 3)  # of which "edges" is the fastest
x = torch.ones(4001, 2, 8, requires_grad=True)
found = {c.name: c for c in ga.explain(graph, heads=2, head_dim=8).candidates}
assert "NUMBA_DISABLE_JIT is set" in found["edges"].reasons[0], found["edges"]
assert bool((ga.attention(x, x, x, graph) == 1).all())
try:
    ga.attention(x, x, x, graph, backend="edges")
except ga.errors.BackendError as error:
    assert "NUMBA_DISABLE_JIT" in str(error)
else:
    raise AssertionError("not refused")
print("all said")
"""


@pytest.mark.slow
def test_numba_that_is_told_to_compile_nothing():
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False
    )
    assert run.stdout == "all said\n", run.stderr


@pytest.fixture
def _asked_again():
    device._numba_refuses.cache_clear()
    yield
    device._numba_refuses.cache_clear()


@pytest.fixture(params=["compiles nothing", "does not fit NumPy", "is absent"])
def reason(request, monkeypatch, _asked_again):
    if request.param == "is absent":
        monkeypatch.setattr(device, "find_spec", lambda name: None)
        return "numba is not installed"
    if request.param == "compiles nothing":
        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
        return "numba compiles nothing: NUMBA_DISABLE_JIT is set"
    monkeypatch.setattr(device, "find_spec", lambda name: "a package")
    monkeypatch.setitem(sys.modules, "numba", None)
    return "numba cannot be imported: import of numba halted; None in sys.modules"


def test_edges_refuses_and_auto_runs(reason):
    graph = ga.graphs.sliding_window(2003, 3)
    q, k, v = tensors(graph)
    with pytest.raises(BackendError, match="backend 'edges' cannot run") as caught:
        ga.attention(q, k, v, graph, backend="edges")
    assert caught.value.reasons == (reason,)
    explained = ga.explain(graph, heads=6, kv_heads=3, head_dim=5, value_dim=7)
    assert explained.chosen != "edges"
    assert reason in str(explained)
    assert_near(
        ga.attention(q, k, v, graph), ga.attention(q, k, v, graph, backend="message_passing")
    )
