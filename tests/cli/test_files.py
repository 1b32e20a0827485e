"""Files: every kind is what the argument needs that takes it."""

import json

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import PerHead, from_edge_index, from_mask, graphs, save
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
    return "".join(f"v {x} {y} {z}\n" for x, y, z in CORNERS) + "".join(
        f"f {a} {b} {c}\n" for a, b, c in TRIANGLES + 1
    )


def ply(faces=5):
    head = (
        "ply\nformat ascii 1.0\nelement vertex 7\nproperty double x\nproperty double "
        "y\nproperty double z\n"
    )
    head += f"element face {faces}\nproperty list uchar int vertex_indices\nend_header\n"
    return head + rows(CORNERS) + rows(np.insert(TRIANGLES[:faces], 0, 3, 1))


def stl():
    loops = (
        "".join(f"vertex {x} {y} {z}\n" for x, y, z in CORNERS[corners]) for corners in TRIANGLES
    )
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
        "empty.off": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    np.save("p.npy", POINTS)
    np.save("q.npy", QUERIES)
    np.save("e.npy", EDGES)
    np.save("words.npy", np.array(["a", "b"]))
    np.savez("e.npz", edge_index=EDGES, num_sources=7, num_targets=3)
    np.save("mask.npy", MASK)
    save(graphs.sliding_window(9, 3, causal=True), "g.json")
    save(graphs.mesh_vertices(FACES, 7), "g.safetensors")
    save(PerHead((graphs.causal(4), graphs.full(4))), "heads.json")


FACES, POS = torch.from_numpy(TRIANGLES), torch.from_numpy(POINTS)
VERTICES, LISTED = torch.from_numpy(CORNERS), from_edge_index(EDGES, num_nodes=5)
CASES = {
    **{f"m.{kind}": graphs.mesh_vertices(FACES, 7) for kind in ("off", "obj", "ply")},
    'mesh_faces(load("m.obj"), 2, share="vertex")': graphs.mesh_faces(FACES, 2, share="vertex"),
    "quad.obj": graphs.mesh_vertices([(0, 1, 2, 3), (1, 4, 2)], 5),
    'mesh_faces(load("quad.obj"))': graphs.mesh_faces([(0, 1, 2, 3), (1, 4, 2), (0, 0, 1)]),
    'knn(load("m.off"), k=3)': graphs.knn(VERTICES, 3),
    'radius(load("cloud.ply"), 0.4)': graphs.radius(VERTICES, 0.4),
    'knn(load("p.xyz"), 5)': graphs.knn(POS, 5),
    'knn(load("p.txt"), 5)': graphs.knn(POS, 5),
    'knn(load("p.csv"), 5)': graphs.knn(POS, 5),
    'radius(load("p.npy"), 0.3, queries=load("q.npy"))': graphs.radius(
        POS, 0.3, queries=torch.from_numpy(QUERIES)
    ),
    'load("e.csv", header=True)': LISTED,
    "e.txt": LISTED,
    "e.npy": LISTED,
    'load("e.txt", num_nodes=11)': from_edge_index(EDGES, num_nodes=11),
    'load("e.txt", num_sources=7, num_targets=3)': from_edge_index(EDGES, 7, 3),
    'load("e.txt", num_sources=7)': from_edge_index(EDGES, 7, 3),
    'load("e.txt", num_targets=3)': from_edge_index(EDGES, 5, 3),
    "e.npz": from_edge_index(EDGES, 7, 3),
    'load("w.txt", weights="ignore")': LISTED,
    'load("far.txt", relabel=True)': from_edge_index([[2, 0], [0, 1]], num_nodes=3),
    'load("twice.txt", duplicates="merge")': from_edge_index([[0, 1], [1, 2]], num_nodes=3),
    'load("mask.npy", max_bytes=1000)': from_mask(MASK),
    "mask.npy": from_mask(MASK),
    "g.json": graphs.sliding_window(9, 3, causal=True),
    "g.safetensors": graphs.mesh_vertices(FACES, 7),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", CASES)
def test_a_file_gives_the_graph_of_the_library(what):
    graph = item(what).graph
    assert graph.equals(CASES[what])
    if "(" not in what and not what.startswith("g."):
        assert what in graph.name


def test_the_corners_of_an_stl_file_are_joined():
    asked = item("m.stl")  # its vertices are numbered as they come
    assert asked.graph.equals(asked.graph.reverse())
    assert (asked.graph.num_nodes, asked.graph.num_edges) == (
        7,
        graphs.mesh_vertices(FACES, 7).num_edges,
    )
    assert asked.notes == ("m.stl: 8 corners joined with a vertex at the same place",)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "what", ["m.off", 'knn(load("p.xyz"), 5)', 'load("e.csv", header=True)', "mask.npy", "g.json"]
)
def test_commands_take_every_kind(shell, what):
    for command in ("show", "explain", "facts"):
        assert json.loads(shell.words([command, what, "--json"]).stdout)["what"] == what


CENTRES = CORNERS[TRIANGLES].mean(1)
PLACES = {
    "m.off": {"pos": CORNERS, "faces": TRIANGLES},
    'mesh_faces(load("m.ply"))': {"pos": CENTRES},
    'mesh_edges(load("m.ply"))': {"pos": CORNERS[ga.shapes.mesh_edge_ends(FACES)].mean(1)},
    'radius(load("p.npy"), 0.4, queries=load("q.npy"))': {"pos": POINTS, "queries": QUERIES},
    'knn(load("p.npy"), 3) | radius(load("p.xyz"), 0.1).reverse()': {"pos": POINTS},
    'knn(load("m.off"), 3) - mesh_vertices(load("m.off"))': {"pos": CORNERS, "faces": TRIANGLES},
    # a picture needs the places of the clusters, too
    'clusters(voxel_ids(load("p.npy"), 0.5))': {},
    'knn(load("m.off"), 3) | knn(load("q.npy"), 3)': {},  # whose nodes are in two places
    'knn(load("p.npy"), 3).relabel(' + str([*range(22, -1, -1)]) + ")": {},
    "e.txt": {},
}


@pytest.mark.parametrize("what", PLACES)
def test_a_picture_gets_the_places_of_the_nodes(what):
    places = item(what).places
    assert set(places) == set(PLACES[what])
    for name, place in PLACES[what].items():
        np.testing.assert_allclose(places[name], place)


def test_notes_tell_what_was_assumed(shell):
    def notes(what):
        return list(item(what).notes)

    assert "e.txt: 5 nodes, by the largest id; num_nodes=N if there are more" in notes("e.txt")[0]
    assert notes('load("e.txt", num_sources=7)') == [
        "e.txt: 3 targets, by the largest id; num_targets=T if there are more"
    ]
    assert notes('load("e.txt", num_nodes=5)') == []
    assert "ids were renumbered 0 .. 2" in notes('load("far.txt", relabel=True)')[0]
    assert notes('mesh_vertices(load("quad.obj")) & mesh_vertices(load("quad.obj"))') == [
        "quad.obj: triangles with a repeated corner: 1"
    ]
    assert "note: quad.obj: triangles with a repeated corner: 1" in shell("show quad.obj").stdout


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "p.xyz",
            "p.xyz holds points, which are no graph by themselves; 'knn(load(\"p.xyz\"), k=8)' and",
        ),
        ("q.npy", "'radius(load(\"q.npy\"), r=0.1)' are"),
        ('knn(load("p.xyz"), k=23)', "k=23 needs at least 24 points, got 23"),
        ("cloud.ply", "cloud.ply holds points, which are no graph by themselves"),
        (
            'mesh_edges(load("cloud.ply"))',
            "cloud.ply: expected faces, got points alone. Try: 'knn(load",
        ),
        (
            'load("m.off", hops=5)',
            'load("m.off") has no option hops here; it takes columns, allow_nonfinite, max_bytes',
        ),
        ('load("m.off", max_bytes="1")', "max_bytes"),
        (
            "e.csv",
            "Try: header=True. Options stand in 'load(\"e.csv\", ...)'.",
        ),
        (
            'load("friends.csv", header=True)',
            "got 'anna'. Try: number the names 0, 1, 2, ... first",
        ),
        ("w.txt", "weights='ignore', which leaves the others out"),
        ("far.txt", "relabel=True, or num_sources=..."),
        ("twice.txt", 'duplicates="merge"'),
        (
            'load("e.txt", num_nodes=5, num_sources=5)',
            "num_nodes is for sources and targets that are the same nodes",
        ),
        ('load("e.txt", num_nodes=3)', "expected ids in [0, 3)"),
        ("missing.off", "missing.off: expected a file that can be read, got: No such file"),
        (".", "got a directory"),
        ('mesh_vertices(load("e.txt"))', "e.txt: expected faces, got points alone"),
        ('clusters(load("e.txt"))', "expected one of .npy, got '.txt'"),
        ('clusters(load("words.npy"))', "can't convert np.ndarray of type numpy.str_"),
        ('load("e.txt", max_bytes=3)', "expected at most 3 bytes"),
        ("empty.off", "empty.off: expected data, got an empty file. Try: write or copy it again."),
        ("heads.json", "heads.json holds a PerHead; WHAT is one graph"),
    ],
)
def test_bad_files_and_options(shell, what, said):
    done = shell.words(["show", what])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_read_is_never_replaced(shell, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("0,1\n1,2\n", encoding="utf-8")
    for same in (own, f"{tmp_path}/../{tmp_path.name}/own.csv"):
        for what in (str(own), f'full(3) - load("{own}")'):
            done = shell.words(["show", what, "--save", str(same)])
            assert f"--save {same} would replace a file that is read" in done.stderr
    assert own.read_text("utf-8") == "0,1\n1,2\n"
    assert shell(f"show {own} --save {tmp_path}/other.csv").exit_code == 0
