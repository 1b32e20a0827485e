"""The path of a call on the design page is the one that a call takes."""

from types import SimpleNamespace

import fresh_python
import house
import path_of_a_call as path
import pytest

PRINT = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


def test_the_page_shows_the_functions_that_a_first_call_of_a_layer_runs():
    shown = path.BLOCK.search(path.PAGE.read_text("utf-8"))
    assert shown, "the design page lacks its markers"
    printed = fresh_python.run(PRINT, path.__file__, expect=0).stdout
    assert shown[0] == shown[1] + printed.removesuffix("\n") + shown[2], (
        "python tests/path_of_a_call.py --write"
    )


def test_functions_are_in_order_of_their_calls():
    names = [name for _, name, _ in path.calls(lambda: path.first_sentence("graph/like.py"))]
    assert names == []
    graph = path.ga.graphs.causal(3)
    found = path.calls(lambda: graph.num_edges)
    assert found[0] == (0, "AttentionGraph.num_edges", "graph/graph.py")
    assert (found[-1][1], found[-1][2]) == ("Edges.count", "graph/edges.py")


def test_another_copy_of_the_package_has_no_path_to_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(path, "PACKAGE", tmp_path)
    with pytest.raises(SystemExit, match=r"graphattn is imported from .*: try PYTHONPATH="):
        path.page()
    nothing = SimpleNamespace(stdout="[[[], []], [[], []]]")
    monkeypatch.setattr(fresh_python, "run", lambda *_, **__: nothing)
    with pytest.raises(AssertionError, match="another graphattn is imported"):
        house.path_of_a_call()
