"""A machine that has torch and PyG and little else: what needs more says what to install."""

import json

import fresh_python
import pytest

ABSENT = (
    "numba",
    "llvmlite",
    "scipy",
    "matplotlib",
    "typer",
    "click",
    "rich",
    "trimesh",
    "transformers",
    "sklearn",
)


def without(absent, code, *words):
    """What a process says in which these packages cannot be imported; its exit status first."""
    blocked = (
        f"import sys; sys.modules.update(dict.fromkeys({tuple(absent)!r})); sys.argv[1:] = "
        f"{words!r}\n"
    )
    done = fresh_python.run(blocked + code)
    return done.returncode, done.stdout, done.stderr


def test_the_library_runs_without_what_is_optional_or_compiled():
    """Everything public is imported; graphs are built, explained, run, differentiated and
    verified.
    """
    code = """
import torch, graphattn as ga, graphattn.bench, graphattn.convert.files
assert all(hasattr(ga, name) for name in ga.__all__) and hasattr(ga.models, "GPT")
graph = ga.graphs.sliding_window(17, 5, causal=False) | ga.graphs.global_tokens(17, [0])
found = {c.name: c for c in ga.explain(graph).candidates}
assert found["edges"].reasons == ("llvmlite is not installed",)
layer = ga.nn.GraphAttention(8, 2)
layer(torch.randn(17, 8), graph).sum().backward()
assert ga.verify(graph.materialise(), dtypes=(torch.float64,)).ok
try:
    ga.attention(*torch.randn(3, 17, 2, 8), graph, backend="edges")
except ga.GraphAttnError as error:
    assert "llvmlite" in str(error)
"""
    assert without(ABSENT, code) == (0, "", "")


def test_the_edges_backend_runs_without_numba():
    code = """
import torch, graphattn as ga
x = torch.ones(17, 2, 8, requires_grad=True)
ga.attention(x, x, x, ga.graphs.sliding_window(17, 5, causal=True), backend="edges").sum().backward()
assert torch.allclose(x.grad.sum(), torch.tensor(17.0 * 16))
"""
    assert without(["numba"], code) == (0, "", "")


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ("typer", ("show", "causal(5)")),
        ("rich", ("show", "causal(5)")),
        ("scipy", ("show", "knn(square, 3)")),
    ],
)
def test_the_command_line_says_what_to_install(absent, words):
    status, out, told = without([absent], "from graphattn.cli import main; main()", *words)
    assert (status, out) == (2, "")
    needs = f"error: this needs {absent}, which is not installed: pip install {absent}"
    assert told.splitlines()[-1] == needs  # a slow machine says before that it builds


def test_doctor_tells_of_what_does_not_run_without_llvm():
    status, out, _ = without(
        ["llvmlite"], "from graphattn.cli import main; main()", "doctor", "--json"
    )
    found = json.loads(out)
    assert status == 0  # it is installed, after all
    assert found["cache"] == {"path": None, "functions": 0, "bytes": 0}
    details = {check["backend"]: check["detail"] for check in found["self_check"]}
    assert details["edges"] == "not run: llvmlite is not installed"
    assert details["dense"].startswith("largest error")
