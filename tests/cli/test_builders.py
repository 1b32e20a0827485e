"""graphattn builders."""

import inspect

from graphattn import AttentionGraph, graphs
from graphattn.graphs import BUILDERS

WINDOW = (
    "(num_targets: int, window: int | tuple[int, int], *, causal: bool | None = None, "
    "dilation: int = 1, num_sources: int | None = None, align: Literal['end', 'start'] = 'end')"
)


def test_every_builder_is_listed_with_its_arguments(shell):
    text = shell("builders").stdout
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for name, builder in BUILDERS.items():
        assert f" {name}(" in f" {flat}"
        assert all(f"{argument}: " in flat for argument in inspect.signature(builder).parameters)
    assert f"sliding_window{WINDOW}" in flat
    assert "align: Literal['end', 'start'] = 'end'" in flat
    assert "voxel_ids(" in flat
    listed = shell.json("builders")["builders"]
    assert [row["name"] for row in listed][: len(BUILDERS)] == list(BUILDERS)
    assert listed[0] == {
        "name": "full",
        "signature": "(num_nodes: int)",
        "line": "Every node reads every node, itself included: an encoder.",
    }


def test_one_builder_in_full_and_those_about_a_word(shell):
    page = shell("builders sliding-window").stdout
    assert page.startswith(f"sliding_window{WINDOW}\n\n")
    assert inspect.getdoc(graphs.sliding_window) in page
    assert {row["name"] for row in shell.json("builders mesh")["builders"]} >= {
        "mesh_vertices",
        "mesh_faces",
    }
    assert "did you mean sliding_window?" in shell.error("builders sliding_windw")
    assert "no builder has 'qqq' in its name or line; graphattn builders lists all" in shell.error(
        "builders qqq"
    )


def test_a_new_builder_is_taken_up(shell, monkeypatch):
    def scattered(size: tuple[int, int], share: float, *, loops: bool = True) -> AttentionGraph:
        """Scattered edges."""
        assert (size, share, loops) == ((5, 7), 0.25, False)
        return graphs.full(35)

    monkeypatch.setitem(BUILDERS, "scattered", scattered)
    assert shell.json("show 'scattered((5, 7), .25, loops=False)'")["facts"]["num_edges"] == 35 * 35
    page = shell("builders scattered").stdout
    assert (
        page
        == "scattered(size: tuple[int, int], share: float, *, loops: bool = True)\n\nScattered edges.\n"
    )
    monkeypatch.setattr(scattered, "__doc__", None)  # as python -OO leaves it
    assert shell("builders scattered").stdout == page.partition("\n")[0] + "\n"
