"""Files: every kind gives the graph that the library makes of it."""

import numpy as np
import pytest
import scipy.sparse
import torch

from graphattn import from_edge_index, from_mask, graphs
from graphattn.cli.what import item

RNG = np.random.default_rng(11)
POINTS, QUERIES = RNG.random((23, 3)), RNG.random((7, 3))
TRIANGLES = np.array([[0, 1, 2], [2, 1, 3], [2, 3, 4], [4, 3, 5], [4, 5, 6]])
CORNERS = RNG.random((7, 3))
EDGES = np.array([[0, 1, 1, 4, 3], [1, 1, 2, 0, 2]])
MASK = RNG.random((5, 7)) < 0.4


def rows(table):
    return "".join(" ".join(map(str, row)) + "\n" for row in table.tolist())


def off():
    return f"OFF\n7 5 0\n{rows(CORNERS)}" + rows(np.insert(TRIANGLES, 0, 3, 1))


def obj():
    return "".join(f"v {x} {y} {z}\n" for x, y, z in CORNERS) + "".join(f"f {a} {b} {c}\n" for a, b, c in TRIANGLES + 1)


def ply(faces=5):
    head = "ply\nformat ascii 1.0\nelement vertex 7\nproperty double x\nproperty double y\nproperty double z\n"
    head += f"element face {faces}\nproperty list uchar int vertex_indices\nend_header\n"
    return head + rows(CORNERS) + rows(np.insert(TRIANGLES[:faces], 0, 3, 1))


def stl():
    loops = ("".join(f"vertex {x} {y} {z}\n" for x, y, z in CORNERS[corners]) for corners in TRIANGLES)
    facets = (f"facet normal 0 0 0\nouter loop\n{loop}endloop\nendfacet\n" for loop in loops)
    return f"solid s\n{''.join(facets)}endsolid s\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "m.off": off(),
        "m.obj": obj(),
        "m.ply": ply(),
        "m.stl": stl(),
        "cloud.ply": ply(0),
        "quad.obj": "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 2 2 0\nf 1 2 3 4\nf 2 5 3\nf 1 1 2\n",
        "p.xyz": rows(POINTS),
        "p.txt": rows(POINTS),
        "p.csv": "x,y,z\n" + rows(POINTS).replace(" ", ","),
        "friends.csv": "from,to\nanna,ben\n",
        "e.csv": "from,to\n" + rows(EDGES.T).replace(" ", ","),
        "e.txt": rows(EDGES.T),
        "w.txt": rows(np.vstack((EDGES, [5, 6, 7, 8, 9])).T),
        "far.txt": "1000000000000 7\n7 11\n",
        "twice.txt": "0 1\n1 2\n0 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    np.save("p.npy", POINTS)
    np.save("q.npy", QUERIES)
    np.save("e.npy", EDGES)
    np.savez("e.npz", edge_index=EDGES, num_sources=7, num_targets=3)
    np.save("mask.npy", MASK)
    scipy.sparse.save_npz("s.npz", scipy.sparse.csr_matrix(MASK))


def test_floats_that_look_like_a_mask_say_so(shell):
    for name, table in (("square.npy", RNG.random((7, 7))), ("flags.npy", np.tri(5, 3))):
        np.save(name, table)
        assert "a mask? Save array.astype(bool)" in shell.error(f"show {name}")
    assert "a mask?" not in shell.error("show p.npy")


def test_too_many_edges_to_save_in_words_of_the_command_line(shell):
    said = shell.error("show full --size 20000 --save big.npz")
    assert "a smaller --size or a sparser pattern can be saved" in said
    assert "explicit" not in said


FACES, POS = torch.from_numpy(TRIANGLES), torch.from_numpy(POINTS)
VERTICES, LISTED = torch.from_numpy(CORNERS), from_edge_index(EDGES, num_nodes=5)
CASES = [
    *((f"m.{kind}", graphs.mesh_vertices(FACES, 7)) for kind in ("off", "obj", "ply")),
    ("m.stl", None),  # its vertices are numbered as they come: tested by its size
    ("m.off --hops 2 --self-loops", graphs.mesh_vertices(FACES, 7, 2, self_loops=True)),
    ("m.ply --faces", graphs.mesh_faces(FACES)),
    ("m.obj --faces --share vertex --hops 2", graphs.mesh_faces(FACES, 2, share="vertex")),
    ("quad.obj", graphs.mesh_vertices([(0, 1, 2, 3), (1, 4, 2)], 5)),
    ("quad.obj --faces", graphs.mesh_faces([(0, 1, 2, 3), (1, 4, 2), (0, 0, 1)])),
    ("m.off --k 3", graphs.knn(VERTICES, 3)),
    ("cloud.ply --radius 0.4", graphs.radius(VERTICES, 0.4)),
    ("p.xyz --k 5", graphs.knn(POS, 5)),
    ("p.npy --k=5 --include-self", graphs.knn(POS, 5, include_self=True)),
    ("p.npy --radius 0.3 --queries q.npy", graphs.radius(POS, 0.3, queries=torch.from_numpy(QUERIES))),
    ("e.csv --header", LISTED),
    ("e.txt", LISTED),
    ("e.npy", LISTED),
    ("e.txt --num-nodes 11", from_edge_index(EDGES, num_nodes=11)),
    ("e.txt --num-sources 7 --num-targets 3", from_edge_index(EDGES, 7, 3)),
    ("e.txt --num-sources 7", from_edge_index(EDGES, 7, 3)),
    ("e.npz", from_edge_index(EDGES, 7, 3)),
    ("w.txt --weights ignore", LISTED),
    ("far.txt --relabel", from_edge_index([[2, 0], [0, 1]], num_nodes=3)),
    ("twice.txt --duplicates merge", from_edge_index([[0, 1], [1, 2]], num_nodes=3)),
    ("s.npz", from_mask(MASK)),
    ("mask.npy", from_mask(MASK)),
]


@pytest.mark.parametrize(("words", "graph"), CASES, ids=[words for words, _ in CASES])
def test_a_file_gives_the_librarys_graph(words, graph):
    path, *options = words.split()
    found = item(path, options).graph
    if graph is None:
        assert found.equals(found.reverse())
        assert (found.num_nodes, found.num_edges) == (7, graphs.mesh_vertices(FACES, 7).num_edges)
    else:
        assert found.equals(graph)
    assert path in found.name


def test_as_overrides_what_the_name_says():
    assert item("p.txt", ["--k", "5"], "points").graph.equals(graphs.knn(POS, 5))
    assert item("p.csv", ["--k", "5", "--header"], "points").graph.equals(graphs.knn(POS, 5))
    assert item("m.ply", ["--k", "3"], "points").graph.equals(graphs.knn(VERTICES, 3))


@pytest.mark.parametrize("words", ["m.off", "m.ply --faces", "p.xyz --k 5", "e.csv --header", "mask.npy"])
def test_every_command_on_every_kind(shell, words):
    assert shell.json(f"show {words}")["facts"]["num_edges"] > 0
    assert shell.json(f"explain {words} --heads 2")["chosen"]
    assert shell.json(f"verify {words} --seed 3")["ok"] is True


@pytest.mark.parametrize("words", ["m.off", "m.ply --faces", "p.npy --radius 0.4 --queries q.npy", "quad.obj"])
def test_pictures_are_drawn_where_the_nodes_are(shell, monkeypatch, words):
    seen = {}

    def plot(graph, **places):
        from matplotlib.figure import Figure

        seen.update(places)
        return Figure()

    monkeypatch.setattr("graphattn.viz.plot", plot)
    done = shell(f"show {words} --out picture.png")
    assert done.exit_code == 0, done.output
    if "--faces" in words:
        np.testing.assert_allclose(seen["pos"], CORNERS[TRIANGLES].mean(1))
    elif "queries" in words:
        assert seen["queries"].shape == (7, 3)
        assert seen["pos"].shape == (23, 3)
    else:
        assert len(seen["pos"]) == {"m.off": 7, "quad.obj": 5}[words]
        assert seen["faces"].shape[1] == 3


def test_notes_tell_what_was_assumed(shell):
    assert "5 nodes, told from the largest id" in shell.json("show e.txt")["notes"][0]
    assert "3 targets, told from the largest id" in shell.json("show e.txt --num-sources 7")["notes"][0]
    assert shell.json("show e.txt --num-nodes 5")["notes"] == []
    assert "renumbered" in shell.json("show far.txt --relabel")["notes"][0]
    assert shell.json("explain quad.obj")["notes"] == ["triangles with a repeated corner: 1"]
    assert "note: triangles with a repeated corner: 1" in shell("show quad.obj").stdout
    assert "triangles with a repeated corner: 1" in shell.json("verify quad.obj")["notes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("p.xyz", "p.xyz needs --k N (the nearest points) or --radius X"),
        ("p.xyz --k 5 --radius 2", "takes one of --k and --radius"),
        ("p.xyz --k 23", "--k 23 needs at least 24 points, got 23; use a smaller k, or --clamp"),
        ("cloud.ply", "--k N or --radius X, if it is a point cloud"),
        (
            "p.txt --k 5",
            "no option --k (p.txt was read as edges; --as points overrides); p.txt takes [--num-sources N]",
        ),
        (
            "m.off --window 5",
            "no option --window (m.off was read as mesh; --as points overrides); m.off takes [--hops N]",
        ),
        ("mask.npy --hops 2", "--as points|edges overrides"),
        ("e.csv", "Try: --header, if this line is a row of names"),
        ("friends.csv --header", "line 2: expected an integer, got 'anna'. Try: number the names 0, 1, 2, ... first"),
        ("p.csv --as points --k 5", "Try: --header, if this line is a row of names"),
        ("w.txt", "--weights ignore leaves the others out"),
        ("far.txt", "relabel"),
        ("twice.txt", "repeated edges. --duplicates merge drops copies, --duplicates keep counts"),
        ("e.txt --num-nodes 5 --num-sources 5", "--num-nodes says that sources and targets are the same nodes"),
        ("e.txt --num-nodes 3", "4"),
        ("missing.off", "missing.off: expected a file that can be read, got: No such file"),
        (".", "got a directory"),
        ("e.txt --as mask", "expected one of .npy"),
        ("e.txt --max-bytes 3", "expected 1 to 3 bytes"),
    ],
)
def test_bad_files_and_options(shell, words, said):
    assert said in shell.error(f"show {words}")


def test_an_empty_file_is_told_apart(shell, tmp_path):
    (tmp_path / "empty.off").write_bytes(b"")
    assert "an empty file. Try: --max-bytes ... if" in shell.error("verify empty.off")


def test_the_file_that_is_read_is_never_replaced(shell, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("0,1\n1,2\n")
    for same in (own, f"{tmp_path}/../{tmp_path.name}/own.csv"):
        assert f"--save {same} would replace the file that is read" in shell.error(f"show {own} --save {same}")
    assert own.read_text() == "0,1\n1,2\n"
    assert shell(f"show {own} --save {tmp_path}/other.csv").exit_code == 0


def test_a_directory_is_named_one(shell, tmp_path):
    (tmp_path / "mesh.d").mkdir()
    for folder in (tmp_path, tmp_path / "mesh.d"):
        assert "expected a file, got a directory" in shell.error(f"show {folder}")


def test_a_size_beyond_int64_is_refused(shell):
    assert "must be below 2**63, got a number of 67 bits" in shell.error("show causal --size 100000000000000000000")
