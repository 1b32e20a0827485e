"""The page to turn a graph in space: its data are the graph's, and its script does what it says
(run by node).
"""

import base64
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError, OptionError, ShapeError
from graphattn.viz import to_html
from graphattn.viz.colours import colouring

CUBE = torch.tensor([[x, y, z] for x in (0.0, 1) for y in (0.0, 1) for z in (0.0, 1)])
SIDES = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4],
         [1, 5, 7], [1, 7, 3]]  # fmt: skip
SCRIPT = Path(ga.__file__).parent / "viz" / "page" / "turn.js"
RUNNER = Path(__file__).parent / "turn_page.js"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="runs the page's script, which needs node"
)


def cloud(num: int, seed: int = 0, d: int = 3) -> torch.Tensor:
    return (
        torch.rand(num, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10
        - 3
    )


def cube(**properties) -> Data:
    return Data(pos=CUBE, face=torch.tensor(SIDES).T, **properties)


def weights_on(graph, heads: int = 3):
    generator = torch.Generator().manual_seed(1)
    query, key = (
        torch.randn(n, heads, 5, generator=generator)
        for n in (graph.num_targets, graph.num_sources)
    )
    return ga.attention(query, key, key, graph, return_weights=True).weights


def shuffled(graph):
    """The same edges in another order: the page must sort weights with them."""
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(2))
    return ga.from_edge_index(graph.edge_index[:, order], graph.num_sources, graph.num_targets)


def data_of(path: Path) -> dict:
    return json.loads(
        re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1]
    )


def array(text: str, dtype: str) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(
        np.dtype(dtype).itemsize, -1
    )
    return np.ascontiguousarray(planes.T).view(dtype)[:, 0]


def places(path: Path) -> np.ndarray:
    """(N, 3), as the page has them: in 65,536 steps from -1 to 1."""
    return array(data_of(path)["sets"][0]["at"], "<u2").reshape(3, -1).T / 32767.5 - 1


def run(path: Path, **orders) -> object:
    command = ["node", str(RUNNER), str(path), str(SCRIPT), json.dumps(orders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def page(tmp_path):
    """Points with weights: (path, weights, pos)."""
    pos = cloud(41)
    weights = weights_on(shuffled(ga.graphs.knn(pos, k=5)))
    return to_html(weights, tmp_path / "page.html", pos, target=7), weights, pos


def test_the_data_are_the_graph_and_its_weights(page):
    path, weights, pos = page
    data = data_of(path)
    graph, at = data["graphs"][0], places(path)
    ptr, source = array(graph["ptr"], "<u4"), array(graph["source"], "<u4")
    alpha = array(graph["weight"], "<u2").reshape(-1, 3) / 65535
    dense = np.zeros((3, 41, 41))
    for t in range(41):
        for e in range(ptr[t], ptr[t + 1]):
            dense[:, t, source[e]] = alpha[e]
    np.testing.assert_allclose(dense, weights.dense(), atol=1 / 65535)
    assert (len(data["sets"]), graph["from"], graph["to"], graph["heads"], data["target"]) == (
        1,
        0,
        0,
        3,
        7,
    )
    distances = [torch.pdist(x) for x in (torch.tensor(at).double(), pos)]
    torch.testing.assert_close(
        distances[0] / distances[0].max(), distances[1] / distances[1].max(), rtol=0, atol=4e-5
    )
    assert np.linalg.norm(at, axis=1).max() == pytest.approx(1, abs=3e-5)


def test_the_page_needs_nothing_else(page):
    html = page[0].read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(|src=|href=|fetch\(|XMLHttp", html)
    assert html.count("<script") == 2


def test_a_name_cannot_break_the_page(tmp_path):
    graph = ga.from_mask(torch.eye(5).bool(), name="</script><b>$data")
    html = to_html(graph, tmp_path / "page.html", cloud(5)).read_text(encoding="utf-8")
    assert "<b>" not in html
    assert html.count("</script>") == 2
    assert "&lt;b&gt;$data" in html


@needs_node
@pytest.mark.parametrize("head", [-1, 0, 2])
def test_the_script_reads_the_weights(page, head):
    path, weights, _ = page
    dense = weights.dense().double()
    wanted = dense.mean(0) if head == -1 else dense[head]
    for target, read in enumerate(run(path, do="read", head=head)):
        assert [each["weight"] for each in read] == sorted(each["weight"] for each in read)
        assert {each["source"] for each in read} == set(
            weights.graph.mask()[target].nonzero().flatten().tolist()
        )
        for each in read:
            assert each["weight"] == pytest.approx(float(wanted[target, each["source"]]), abs=2e-5)


@needs_node
def test_the_script_projects_as_a_camera_at_that_angle(page):
    """Against matplotlib's own view matrix."""
    from mpl_toolkits.mplot3d import proj3d

    path, _, _ = page
    at = places(path)
    seen = np.array(run(path, do="project")[0]).reshape(-1, 3)
    e, a = np.radians(data_of(path)["camera"])
    eye = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right, up, back = proj3d._view_axes(eye, np.zeros(3), np.array([0, 0, 1.0]), 0)
    np.testing.assert_allclose(seen[:, 0], 400 + 276 * at @ right, atol=1e-3)
    np.testing.assert_allclose(seen[:, 1], 300 - 276 * at @ up, atol=1e-3)
    np.testing.assert_allclose(seen[:, 2], at @ back, atol=1e-5)


@needs_node
def test_dragging_turns_the_front_with_the_pointer(page):
    flat = [1, 0, 0, 0, 1, 0, 0, 0, 1]
    for orders, wanted in (
        ({"right": 0.1, "down": 0}, [np.sin(0.1), 0]),
        ({"right": 0, "down": 0.1}, [0, -np.sin(0.1)]),
    ):
        turn = np.reshape(run(page[0], do="turned", view={"turn": flat}, **orders), (3, 3))
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
        # of three: right, up, towards the eye
        np.testing.assert_allclose((turn @ [0, 0, 1])[:2], wanted, atol=1e-12)


@needs_node
def test_of_two_points_on_one_pixel_the_nearer_is_picked(tmp_path):
    pos = torch.tensor([[0, 0, -1.0], [0, 0, 1], [1, 0, 0], [1, 0.3, 0]])
    path = to_html(ga.graphs.full(4), tmp_path / "page.html", pos)
    along_z = {"turn": [1, 0, 0, 0, 1, 0, 0, 0, 1]}
    assert run(path, do="picked", view=along_z) == [1, 1, 2, 3]


@pytest.mark.sample(3)
@needs_node
@pytest.mark.parametrize("kind", ["points", "mesh", "two sets", "grid", "nothing to read"])
def test_every_source_of_the_target_is_drawn(tmp_path, kind):
    pos, path = cloud(23), tmp_path / "page.html"
    graph = ga.graphs.knn(pos, k=4)
    if kind == "mesh":
        faces = torch.tensor([[0, 1, 2], [2, 3, 4], [5, 6, 7]])
        to_html(graph, path, pos, faces=faces)
    elif kind == "two sets":
        graph = ga.graphs.knn(pos, k=4, queries=cloud(11, seed=1))
        to_html(graph, path, pos, queries=cloud(11, seed=1))
    elif kind == "grid":
        graph = ga.graphs.window_partition((4, 6), (2, 3))
        to_html(graph, path)
    elif kind == "nothing to read":
        graph = ga.from_edge_index(torch.tensor([[0], [1]]), 23, 23)
        to_html(weights_on(graph), path, pos)
    else:
        to_html(graph, path, pos)
    calls = run(path, do="draw", target=9, head=-1)
    assert calls["bad"] == 0
    read = int(graph.in_degree[9])
    assert len(calls["arc"]) == len(calls["moveTo"]) == read
    where = np.array(run(path, do="project")[0]).reshape(-1, 3)[graph.mask()[9].numpy(), :2]
    drawn = np.array(calls["arc"]).reshape(-1, 3)[:, :2]
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(where, axis=0), atol=1e-3)
    assert calls["fill"] == read
    targets = graph.num_targets if kind == "two sets" else 0
    assert calls["strokeRect"] == 1 + targets


@needs_node
def test_looking_at_a_target_puts_it_in_the_middle_in_front(page):
    for target in (0, 17, 40):
        found = run(page[0], do="look", target=target)
        assert found["at"][:2] == pytest.approx([400, 300], abs=1e-2)
        assert found["at"][2] == pytest.approx(
            float(np.linalg.norm(places(page[0])[target])), abs=1e-5
        )


@needs_node
def test_a_session_with_pointer_keys_and_touch(page):
    path, weights, _ = page
    view = run(path, do="fitted")  # as the page is after a reset
    x, y, _ = np.array(run(path, do="project", view=view)[0]).reshape(-1, 3)[12]
    at = {"clientX": x, "clientY": y, "pointerType": "mouse"}
    picked = run(path, do="picked", view=view)[12]
    away = {"clientX": x + 90, "clientY": y + 40}
    events = [
        ["reset", "click", {}],
        ["picture", "pointerdown", at],
        ["picture", "pointerup", at],  # 3: a click chooses
        ["head", "change", {}, "1"],  # 4
        ["target", "input", {}, "20"],  # 5
        ["target", "input", {}, "41"],  # 6: there is none; nothing changes
        ["picture", "pointerdown", at],
        ["picture", "pointermove", away],
        ["picture", "pointerup", away],  # 9: a drag chooses nothing
        ["picture", "pointerdown", at],
        ["picture", "pointerdown", {**away, "pointerId": 2}],
        ["picture", "pointermove", {"clientX": x - 50, "clientY": y}],
        ["picture", "pointerup", away],
        ["picture", "pointerup", {**away, "pointerId": 2}],  # 14: nor does a pinch
        ["picture", "wheel", {"deltaY": -300, "deltaMode": 0}],
        *(
            ["picture", "keydown", {"key": key}]
            for key in ("ArrowLeft", "ArrowUp", "+", "-", "Enter", "0", "x")
        ),
        ["look", "click", {}],
        ["reset", "click", {}],
    ]
    found = run(path, do="session", events=events)
    assert found["bad"] == 0
    assert found["heads"] == ["head 0", "head 1", "head 2"]
    said = found["said"]
    assert said[0].startswith("Target 7 reads 5 sources; the heaviest: ")
    assert said[3].startswith(f"Target {picked} reads 5")
    assert said[4] != said[3]
    heaviest = weights.dense()[1, 20].argmax()
    assert said[5].startswith(
        f"Target 20 reads 5 sources; the heaviest: {heaviest} ({weights.dense()[1, 20].max():.3f})"
    )
    assert set(said[6:]) == {said[5]}


@needs_node
def test_dots_are_as_large_as_weights_of_one_are_or_as_the_largest_where_that_is_chosen(page):
    path, weights, _ = page
    row = np.sort(weights.dense()[1, 7][weights.graph.mask()[7]].numpy())
    for relative, top in ((False, 1), (True, row.max())):
        radius = np.array(run(path, do="draw", target=7, head=1, relative=relative)["arc"]).reshape(
            -1, 3
        )[:, 2]
        np.testing.assert_allclose(radius, 2.5 + 3.5 * np.sqrt(row / top), atol=1e-3)
    events = [
        ["head", "change", {}, "1"],
        ["relative", "change", {}, True],
        ["relative", "change", {}, False],
    ]
    first = f"{weights.dense()[:, 7].mean(0).max():.3f}"
    assert run(path, do="session", events=events)["most"] == [
        first,
        f"{row.max():.3f}",
        f"{row.max():.3f}",
        "1",
    ]


@needs_node
def test_a_mesh_is_the_shape_with_its_creases_and_colours(tmp_path):
    shape = cube(y=torch.arange(8) % 3, height=torch.arange(8.0))
    found = run(to_html(shape, tmp_path / "page.html"), do="set")
    at, node, faces = (np.array(found[name]) for name in ("at", "node", "faces"))
    np.testing.assert_array_equal(node[faces].reshape(-1, 3), shape.face.T)
    np.testing.assert_allclose(at.reshape(-1, 3) * np.sqrt(3), 2 * shape.pos.numpy() - 1, atol=1e-4)
    normal = np.array(found["normal"]).reshape(-1, 3)
    assert len(node) == 24  # each corner once for each of its three sides
    np.testing.assert_array_equal(np.sort(np.abs(normal), 1), [[0, 0, 127]] * 24)
    for name, rgb in zip(("y", "height"), found["colors"], strict=True):
        wanted = 255 * colouring(shape[name].numpy(), name).rgb
        np.testing.assert_allclose(np.array(rgb).reshape(-1, 3), wanted, atol=0.5)
    assert len(run(to_html(shape, tmp_path / "smooth.html", smooth=True), do="set")["node"]) == 8


@needs_node
def test_weights_are_the_colours_of_a_mesh_and_a_view_is_filled(tmp_path):
    graph = ga.graphs.mesh_vertices(cube().face.T)
    weights = ga.EdgeWeights(graph, torch.arange(1.0, graph.num_edges + 1)[:, None] / 100)
    path = to_html(weights, tmp_path / "page.html", cube(), target=3)
    heat = np.array(run(path, do="heat", target=3, head=0, relative=True)).reshape(-1, 3)
    row = weights.dense()[0, 3].numpy()
    np.testing.assert_allclose(heat[row == 0], [[195, 202, 211]] * (row == 0).sum())
    assert heat[row.argmax()].tolist() == [156, 29, 32]  # the largest is the darkest
    assert run(path, do="session", events=[])["heads"] == ["head 0"]
    view = run(path, do="fitted", view={"width": 900, "height": 500})
    seen = np.array(run(path, do="project", view=view)[0]).reshape(-1, 3)
    assert max(np.ptp(seen[:, 0]) / 900, np.ptp(seen[:, 1]) / 500) == pytest.approx(0.94, abs=1e-3)
    np.testing.assert_allclose((seen.max(0) + seen.min(0))[:2] / 2, [450, 250], atol=0.1)


@needs_node
def test_weights_above_one_are_kept_as_they_are(tmp_path):
    graph = ga.graphs.full(3)
    weights = ga.EdgeWeights(graph, torch.arange(9.0)[:, None] / 2)
    path = to_html(weights, tmp_path / "page.html", cloud(3), target=2)
    assert [each["weight"] for each in run(path, do="read", head=0)[2]] == pytest.approx(
        [3, 3.5, 4], abs=1e-4
    )
    assert run(path, do="session", events=[])["most"] == ["4.000"]


@needs_node
def test_without_weights_there_is_no_choice_of_head(tmp_path):
    path = to_html(ga.graphs.knn(cloud(9), k=3), tmp_path / "page.html", cloud(9))
    found = run(path, do="session", events=[["target", "input", {}, "4"]])
    assert found.pop("most") == ["1", "1"]
    first, second = found.pop("said")
    assert first.startswith("Click a node to see what it reads.")
    assert "This browser has no WebGL 2, which draws" in first
    assert second == "Target 4 reads 3 sources."
    assert found == {"heads": [], "hidden": True, "bad": 0}


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda path: to_html(ga.graphs.causal(9), path), GraphError, "needs pos"),
        (
            lambda path: to_html(ga.graphs.full(5_000), path, cloud(5_000)),
            GraphError,
            "subgraph, or fewer heads",
        ),
        (
            lambda path: to_html(ga.graphs.full(9), path, cloud(8)),
            ShapeError,
            "pos must have shape",
        ),
        (
            lambda path: to_html(ga.graphs.full(9), path, cloud(9), target=9),
            GraphIndexError,
            r"target must be in \[0, 9\), the targets, got 9 to 9",
        ),
        (
            lambda path: to_html(ga.graphs.full(9), path / "no" / "x.html", cloud(9)),
            OptionError,
            "expected a file that can be written",
        ),
        (lambda path: to_html("graph", path, cloud(3)), OptionError, "without weights"),
        (lambda path: to_html(torch.zeros(3, 3), path, cloud(3)), ShapeError, r"\(H, T, S\)"),
        (
            lambda path: to_html([ga.graphs.full(3), ga.graphs.full(4)], path, cloud(3)),
            GraphError,
            "the same sources",
        ),
        (lambda path: to_html(cloud(3), path, target=1), OptionError, "there is none"),
        (lambda path: to_html(cloud(3), path, color="y"), ShapeError, "it has positions alone"),
    ],
)
def test_refusals(tmp_path, make, error, words):
    with pytest.raises(error, match=words):
        make(tmp_path / "page.html")


def test_a_label_is_switched_by_its_colour(tmp_path):
    pos = cloud(7)
    shape = Data(pos=pos, y=torch.arange(7) % 2)
    path = to_html(shape, tmp_path / "page.html", names=["<roof>", "tree"])
    (colours,) = data_of(path)["sets"][0]["colors"]
    boxes = re.findall(r'<input type="checkbox" checked value="(.*?)">', colours["legend"])
    assert [json.loads(value) for value in boxes] == colours["palette"]
    assert "&lt;roof&gt;</label>" in colours["legend"]


def test_labels_of_the_same_colour_have_one_switch(tmp_path):
    """As classes 2 and 14 of LAS, of twelve colours."""
    shape = Data(pos=cloud(6), y=torch.tensor([2, 14, 5, 2, 14, 5]))
    path = to_html(shape, tmp_path / "page.html", names={2: "ground", 14: "wire", 5: "tree"})
    (colours,) = data_of(path)["sets"][0]["colors"]
    assert colours["legend"].count("<input") == 2
    assert "ground, wire" in colours["legend"]
    assert "Colours repeat after 12 labels." in colours["legend"]
