"""An environment in which LLVM compiles nothing: "edges" says so, and "auto" runs another
backend.
"""

import sys

import pytest
from attention_formula import assert_near, tensors

import graphattn as ga
from graphattn.backends import device
from graphattn.errors import BackendError
from graphattn.kernels.llvm.native import Target


@pytest.fixture
def _asked_again():
    device._llvm_refuses.cache_clear()
    yield
    device._llvm_refuses.cache_clear()


def fail():
    raise RuntimeError("no such CPU")


@pytest.fixture(params=["knows no CPU", "cannot be imported", "is absent"])
def reason(request, monkeypatch, _asked_again):
    if request.param == "is absent":
        monkeypatch.setattr(device, "find_spec", lambda name: None)
        return "llvmlite is not installed"
    monkeypatch.setattr(device, "find_spec", lambda name: "a package")
    monkeypatch.setattr(device, "version", lambda name: "0.3")
    if request.param == "knows no CPU":
        monkeypatch.setattr(Target, "of_host", fail)
        return "llvmlite 0.3 cannot be used: no such CPU"
    monkeypatch.delitem(sys.modules, "graphattn.kernels.llvm.native")
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    return "llvmlite 0.3 cannot be used: import of llvmlite.binding halted; None in sys.modules"


def test_edges_refuses_and_auto_runs(reason):
    graph = ga.graphs.sliding_window(2003, 3, causal=True)
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
