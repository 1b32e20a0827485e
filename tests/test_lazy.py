"""Packages whose names are imported at first use."""

from pathlib import Path

import fresh_python
import pytest

import graphattn
from graphattn.lazy import attach_stub

PACKAGE = Path(graphattn.__file__).parent
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))


def names_of(stub):
    package = ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
    return package, attach_stub(package, str(stub.with_suffix(".py")))[2]


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_every_name_of_a_stub_is_there(stub):
    package, names = names_of(stub)
    code = f"import {package} as package; print(all(hasattr(package, name) for name in {names}))"
    assert names
    assert len(set(names)) == len(names)
    assert fresh_python.run(code, expect=0).stdout.strip() == "True"


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_no_file_hides_a_name_of_its_package(stub):
    """Python sets an imported file as an attribute of its package, in the place of the name."""
    package, names = names_of(stub)
    files = {path.stem for path in stub.parent.iterdir() if path.suffix in ("", ".py")}
    spaces = set(graphattn.__all__) - {"attention"} if package == "graphattn" else set()
    assert files & set(names) <= {name for name in spaces if (PACKAGE / name).is_dir()}


def test_a_builder_loads_its_own_file_alone():
    code = """import sys, graphattn as ga
ga.graphs.sliding_window(5, 3, causal=True)
print(*(name for name in sys.modules if name.startswith("graphattn.graphs.")))"""
    loaded = fresh_python.run(code, expect=0).stdout.split()
    assert "graphattn.graphs.sequence.basic" in loaded
    assert not [name for name in loaded if name.split(".")[2] in ("points", "mesh", "network")]


def test_an_unknown_name_is_an_attribute_error_as_of_any_module():
    with pytest.raises(
        AttributeError, match=r"module 'graphattn\.graphs' has no attribute 'slidng_window'"
    ):
        graphattn.graphs.slidng_window  # noqa: B018


def test_a_name_that_was_another_one_is_told():
    with pytest.raises(AttributeError, match=r"no attribute 'analyse'; it is graphattn.analysis"):
        graphattn.analyse  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        graphattn.zzz  # noqa: B018


@pytest.mark.parametrize(
    ("room", "name", "hint"),
    [
        (graphattn, "knn", "it is graphattn.graphs.knn"),
        (graphattn.graphs, "strided", "it is graphattn.graphs.sparse_strided"),
        (graphattn.models, "gpt2", "it is graphattn.models.GPT.gpt2"),
        (graphattn.analysis, "find_leaks", "it is graphattn.analysis.measure_leaks"),
        (graphattn, "GraphAttention", "it is graphattn.nn.GraphAttention"),
        (graphattn.nn, "knn", "it is graphattn.graphs.knn"),
        (graphattn.nn, "MultiheadAttention", r"here it is graphattn.nn.GraphAttention\("),
        (graphattn.graphs, "slidng_window", "did you mean 'sliding_window'"),
    ],
)
def test_an_attribute_that_is_elsewhere_is_told(room, name, hint):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; {hint}"):
        getattr(room, name)
