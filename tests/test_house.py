"""The house: rooms import one way, and importing is cheap."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import fresh_python
import house
import networkx as nx
import pytest
import torch

from graphattn.graph.modes import assume_constant

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "graphattn"
#: Rooms in reading order: a file imports only from its own room or from rooms above it.
ROOMS = [
    "versions",
    "missing",
    "lazy",
    "errors",
    "arguments",
    "io",
    "statistics",
    "printed",
    "operands",
    "compiled",
    "pyg",
    "graph",
    "twins",
    "graphs",
    "convert",
    "plans",
    "mistakes",
    "kernels",
    "backends",
    "functional",
    "distributed",
    "nn",
    "analysis",
    "nulls",
    "laws",
    "models",
    "exactness",
    "shapes",
    "viz",
    "training",
    "bench",
    "study",
    "hf",
    "cli",
    "__main__",
]
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in FILES
}


#: Rooms that a layer stands on: they import no other room.
CORE = set(ROOMS[: ROOMS.index("functional") + 1]) - {"analysis"} | {"nn", "exactness"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """At the top or inside a function."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_rooms(path: Path) -> set[str]:
    """Rooms of this package that a file imports, at the top or inside a function."""
    inside = path.relative_to(PACKAGE).parent.parts
    rooms = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = inside[: len(inside) - node.level + 1]
            names = [*base, *(node.module or "").split(".")] if node.module or base else []
            rooms |= (
                {next(part for part in names if part)}
                if names
                else {alias.name for alias in node.names}
            )
        names = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name and name.split(".")[0] == "graphattn":
                rooms.add(".".join(name.split(".")[1:2]) or "the whole package")
    return rooms


def test_every_file_is_in_a_known_room():
    assert {room_of(path) for path in FILES} <= set(ROOMS)
    table = re.findall(
        r"^\| `(\w+)(?:/|\.py)` \|",
        (PACKAGE.parent / "CONTRIBUTING.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert table == ROOMS[:-1]


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        allowed = ROOMS[: ROOMS.index(room_of(path)) + 1]
        if room_of(path) in ("cli", "__main__"):
            allowed = [*allowed, "the whole package"]
        wrong += [
            f"{path.relative_to(PACKAGE)} imports {room}"
            for room in imported_rooms(path) - set(allowed)
        ]
    assert not wrong, wrong


def run_python(code: str) -> str:
    return fresh_python.run(code, expect=0).stdout.strip()


def imported_files(name: str) -> set[str]:
    """Files of this package that a file imports, also for types alone and inside functions."""
    path = MODULES[name]
    parts = name.split(".")
    statements = import_statements(path)
    if path.name == "__init__.py":
        parts.append("__init__")
    if path.with_suffix(".pyi").exists():  # names that are imported when they are used
        statements = statements + import_statements(path.with_suffix(".pyi"))
    found = set()
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(parts[: len(parts) - node.level])
            if node.module:
                base = f"{base}.{node.module}"
            named = [f"{base}.{alias.name}" for alias in node.names]
            found |= {file if file in MODULES else base for file in named}
    return found & MODULES.keys() - {name}


def test_no_two_files_need_each_other():
    """The files of packages too; all but that of the package, which names everything."""
    needs = nx.DiGraph((name, other) for name in MODULES for other in imported_files(name))
    circles = [sorted(part) for part in nx.strongly_connected_components(needs) if len(part) > 1]
    assert circles == []


def test_core_rooms_import_no_other_room():
    wrong = []
    for path in FILES:
        name = str(path.relative_to(PACKAGE))
        if room_of(path) in CORE:
            wrong += [f"{name} imports {room}" for room in imported_rooms(path) - CORE]
    assert not wrong, wrong


def test_import_brings_no_optional_dependency():
    heavy = ["matplotlib", "transformers", "trimesh", "numba", "triton", "natten", "sklearn"]
    heavy += ["meshio", "xarray", "zarr"]
    found = run_python(
        "import sys, torch, torch_geometric; before = set(sys.modules); import graphattn;"
        f"graphattn.attention; print([m for m in {heavy} if m in set(sys.modules) - before])"
    )
    assert found == "[]"


def test_cold_import_adds_under_0_3_seconds():
    """Of CPU time after torch and PyG; more where a loop that takes 0.2 s takes longer, as on a
    busy machine.
    """
    code = """import time; begin = time.process_time()
sum(range(10**7)); start = time.process_time()
import graphattn; graphattn.attention; added = time.process_time() - start
print(added / max(1, (start - begin) / 0.1))"""
    assert any(float(run_python(code)) < 0.3 for _ in range(3))


def test_a_graph_and_attention_need_neither_pyg_nor_torchs_compiler():
    """They take seconds to import."""
    code = """import sys; before = set(sys.modules)
import torch, graphattn as ga
graph = ga.graphs.sliding_window(..., 3, causal=True) | ga.graphs.global_tokens(..., (0,))
x = torch.randn(9, 2, 4)
ga.attention(x, x, x, graph); ga.facts(graph(9)); repr(graph(9)); ga.explain(graph(9)); ga.convert.to_mask(graph(9))
print([name for name in ("torch_geometric", "torch._dynamo", "networkx") if name in sys.modules])"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert result.stdout.strip() == "[]", result.stderr


LAYER = """import sys, torch, graphattn as ga
layer = ga.nn.GraphAttention(8, 2)
x, graph = torch.randn(5, 8), ga.graphs.causal(5)
y = layer(x, graph)
print([name for name in ("torch._dynamo", "torch_geometric.datasets.planetoid", "transformers") if name in sys.modules])
"""


def test_a_layer_needs_neither_torchs_compiler_nor_the_datasets_of_pyg():
    """They take seconds to import."""
    done = subprocess.run(
        [sys.executable, "-c", LAYER], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_torchs_compiler_and_the_datasets_of_pyg_are_there_when_they_are_asked_for():
    code = """import torch_geometric
print(isinstance(layer, torch_geometric.nn.MessagePassing), torch_geometric.datasets.KarateClub.__name__)
print(torch_geometric.is_torch_instance(layer, torch.nn.Module), torch._dynamo is sys.modules["torch._dynamo"])
print(torch.allclose(torch.compile(layer, backend="eager")(x, graph), y))"""
    done = subprocess.run(
        [sys.executable, "-c", LAYER + code], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "[]\nTrue KarateClub\nTrue True\nTrue\n", done.stderr


def test_one_file_imports_pyg():
    """The others import its names from there, so that none loads all of it."""
    importing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in import_statements(path)
        if any(name.split(".")[0] == "torch_geometric" for name in names_imported(node))
    }
    assert importing == {"pyg.py"}


def names_imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]


def loaded_by(call: str) -> set[str]:
    """The files of this package that are loaded where a call is the first thing that is done."""
    found = run_python(
        "import sys, torch, graphattn as ga\n"
        f"{call}\n"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'graphattn'))"
    )
    return {name for name in found.split() if name in MODULES}


def nodes_of(path: Path) -> int:
    """Nodes of the syntax tree without docstrings: what is there to read, however it is split."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    texts = [
        node
        for node in nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return len(nodes) - 2 * len(texts)  # each a statement and its text


def test_a_first_layer_call_loads_what_it_runs():
    """No builder but its own, and nothing that answers questions."""
    loaded = loaded_by(
        "ga.nn.GraphAttention(32, 4)(torch.randn(64, 32), ga.graphs.sliding_window(64, 9, causal=True))"
    )
    others = {"convert", "exactness", "io", "mistakes", "statistics", "twins"}
    assert {room_of(MODULES[name]) for name in loaded} <= CORE - others
    assert len(loaded) <= 150
    assert sum(nodes_of(MODULES[name]) for name in loaded) <= 130_000


def test_verify_loads_known_mistakes_where_something_is_wrong():
    right = loaded_by("ga.verify(ga.graphs.full(13), dtypes=(torch.float64,), gradients=False)")
    wrong = loaded_by(
        "graph = ga.graphs.full(13)\n"
        "window = lambda q, k, v: ga.attention(q, k, v, ga.graphs.sliding_window(13, 3, causal=True))\n"
        "ga.verify(window, graph, dtypes=(torch.float64,), gradients=False)"
    )
    assert "mistakes" not in {room_of(MODULES[name]) for name in right}
    assert "graphattn.mistakes.graphs.mutants" in wrong


def test_marks_for_the_compiler_are_torchs():
    ours, theirs = assume_constant(lambda: 0), torch.compiler.assume_constant_result(lambda: 0)
    assert vars(ours) == vars(theirs) != {}


def test_public_names_are_there_before_and_after_any_is_used():
    code = """import sys; torch = sys.modules.pop("torch")
import graphattn as ga
assert "torch" not in sys.modules; sys.modules["torch"] = torch
names = set(ga.__all__)
assert {"attention", "from_edge_index", "graphs", "nn", "plot", "verify"} <= names
assert [name for name in dir(ga) if not name.startswith("__")] == sorted(names)
assert callable(ga.graphs.knn) and not hasattr(ga, "knn")
from graphattn import *
assert names <= set(globals())"""
    run_python(code)


def test_importing_a_room_does_not_hide_the_function_of_its_name():
    rooms = [
        room for room in ROOMS if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()
    ]
    code = f"import graphattn.{', graphattn.'.join(rooms[:-1])}, graphattn as ga, types;"
    code += (
        "print([name for name in ga.__all__ if isinstance(getattr(ga, name), types.ModuleType)])"
    )
    spaces = [
        "analysis",
        "convert",
        "distributed",
        "graphs",
        "hf",
        "laws",
        "models",
        "nn",
        "nulls",
        "shapes",
        "study",
        "training",
        "viz",
    ]
    assert run_python(code) == str(spaces)


def test_help_shows_the_public_face():
    page = run_python(
        "import pydoc, graphattn; print(pydoc.render_doc(graphattn, renderer=pydoc.plaintext))"
    )
    assert "may read" in page
    assert "assert_exact(" in page
    assert "VERSION\n    0." in page


def test_every_example_ends_in_an_assert():
    for path in sorted((ROOT / "examples").glob("[0-9]*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        assert ast.get_docstring(tree), path
        assert any(isinstance(node, ast.Assert) for node in tree.body[-2:]), path


def test_every_file_is_written_beside_and_renamed():
    """Rates are, by themselves; ``raw`` is a buffer; a worker's file is its own."""
    own = {"io/writing.py", "backends/rates.py", "study/pool.py"}
    writes = re.compile(
        r"\.write_text\(|\.write_bytes\(|\.savefig\((?!raw)|torch\.save\(|open\([^)]*[\"'][wxa]b?[\"']"
    )
    for path in FILES:
        if str(path.relative_to(PACKAGE)) not in own:
            code = re.sub(r'r?"""[\s\S]*?"""', "", path.read_text("utf-8"))
            assert not writes.search(code), path


DENSITY = {
    "tokens a line": 9,
    "wide lines per 1,000": 10,
    "conditional per 1,000 statements": 20,
    "boolean per 1,000 statements": 35,
    "packed per 1,000 statements": 8,
}
PATH = {"files": 20, "functions": 90, "nodes": 3_000, "nodes of a warm call": 1_500}


def test_a_line_of_the_core_holds_one_thing():
    found = house.density()
    assert found.keys() == DENSITY.keys()
    assert {name: x for name, x in found.items() if x > DENSITY[name]} == {}


def test_the_path_of_a_call_is_short():
    found = house.path_of_a_call()
    assert found.keys() == PATH.keys()
    assert {name: x for name, x in found.items() if x > PATH[name]} == {}
