"""The mesh transformer and encode-process-decode against plain torch, on vertices, faces and
edges.
"""

import pytest
import torch
import trimesh
from point_twins import State, between, block, farthest, nearest, perceptron

from graphattn import models
from graphattn.errors import GraphAttnError
from graphattn.graphs import hierarchy, knn, mesh_vertices
from graphattn.nn import laplacian_eigenvector_pe, mesh_elements

MESH = trimesh.creation.icosphere(subdivisions=1, radius=2.0)
random = torch.Generator().manual_seed(0)
POS = torch.tensor(MESH.vertices) + 0.2 * torch.rand(
    len(MESH.vertices), 3, generator=random, dtype=torch.float64
)
FACES = torch.tensor(MESH.faces).long()


def drawn(model):
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model.double().eval()


@pytest.mark.parametrize("readout", ["node", "shape"])
def test_outputs_are_those_of_the_formulas(readout):
    torch.manual_seed(0)
    words = ("offset", "distance")
    model = drawn(models.MeshTransformer(4, 3, 8, 2, 2, spectrum=3, edges=words, readout=readout))
    shape = hierarchy(POS, graph=mesh_vertices(..., self_loops=False), faces=FACES)
    graph, x, state = shape.levels[0].graph, torch.randn(len(POS), 4).double(), State(model)
    y = perceptron(state / "embedding", x) + (state / "spectrum").linear(
        laplacian_eigenvector_pe(graph, 3).double()
    )
    for number in "01":
        made = y.clone()
        for t in range(len(POS)):  # vertices have five or six neighbours
            near = graph.source[graph.target == t]
            own = block(state / "blocks" / number, y, POS, near[None].expand(len(POS), -1))
            made[t] = own[t]
        y = made
    y = (state / "norm").norm(y)
    wanted = perceptron(
        state / "head", y if readout == "node" else torch.cat((y.mean(0), y.amax(0)))[None]
    )
    torch.testing.assert_close(model(x, shape), wanted, rtol=0, atol=1e-9)


def test_encode_process_decode_has_the_outputs_of_its_formulas():
    torch.manual_seed(0)
    pos, queries, x, own = (
        torch.rand(n, k).double() for n, k in ((29, 3), (17, 3), (29, 4), (17, 2))
    )
    kept = farthest(pos, 9)
    coarse = pos[kept]
    shape = hierarchy(pos, points=[kept], graph=knn(..., 4), down=knn(..., 5), up=knn(..., 3))
    for targets in (None, 2):
        model = drawn(models.EncodeProcessDecode(4, 3, 8, 2, 2, target_features=targets))
        state = State(model)
        y, encoder = perceptron(state / "embedding", x), state / "encoder"
        hidden = between(
            encoder / "read",
            (encoder / "own").linear(y[kept]),
            y,
            nearest(pos, coarse, 5),
            coarse,
            pos,
        )
        for number in "01":
            hidden = block(
                state / "processor" / number, hidden, coarse, nearest(coarse, coarse, 5)[:, 1:]
            )
        there, near = (
            (pos, nearest(coarse, pos, 3))
            if targets is None
            else (queries, nearest(coarse, queries, 4))
        )
        y = y if targets is None else perceptron(state / "targets", own)
        y = between(state / "decoder", y, hidden, near, there, coarse)
        inner = (state / "feed_forward" / "up").linear((state / "feed_forward_norm").norm(y))
        y = y + (state / "feed_forward" / "down").linear(torch.nn.functional.gelu(inner))
        wanted = perceptron(state / "head", (state / "norm").norm(y))
        given = {} if targets is None else {"queries": queries, "targets": own}
        decode = None if targets is None else knn(coarse, 4, queries=queries)
        torch.testing.assert_close(model(x, shape, decode, **given), wanted, rtol=0, atol=1e-9)
        with pytest.raises(GraphAttnError, match="are for a model with target_features"):
            model(x, shape, knn(coarse, 4, queries=queries), queries=queries)


def test_elements_are_those_of_trimesh():
    mesh = trimesh.Trimesh(POS.numpy(), FACES.numpy(), process=False)
    vertices, faces, edges = (
        mesh_elements(POS, FACES, kind) for kind in ("vertices", "faces", "edges")
    )
    assert float(vertices[0][:, 0].sum()) == pytest.approx(mesh.area)
    torch.testing.assert_close(vertices[0][:, 1], torch.tensor(mesh.vertex_defects))
    torch.testing.assert_close(faces[0][:, 0], torch.tensor(mesh.area_faces))
    torch.testing.assert_close(faces[0][:, 1:], torch.tensor(mesh.face_angles).sort(1).values)
    torch.testing.assert_close(faces[1].levels[0].normals, torch.tensor(mesh.face_normals))
    for edge, (i, j) in enumerate(mesh_ends(edges)):
        angles, ratios = [], []
        for face, angle, area in zip(
            FACES.tolist(), mesh.face_angles, mesh.area_faces, strict=True
        ):
            if {i, j} <= set(face):
                (corner,) = (c for c in range(3) if face[c] not in (i, j))
                angles.append(float(angle[corner]))
                ratios.append(float((POS[i] - POS[j]).square().sum()) / (2 * float(area)))
        wanted = torch.tensor([*sorted(angles), *sorted(ratios)]).double()
        torch.testing.assert_close(edges[0][edge, 1:], wanted)
    for kind, (features, shape) in (("faces", faces), ("edges", edges), ("vertices", vertices)):
        turn = torch.linalg.qr(
            torch.rand(3, 3, generator=torch.Generator().manual_seed(2)).double()
        )[0]
        turn = turn * torch.linalg.det(turn)
        turned, other = mesh_elements(POS @ turn.T, FACES, kind)
        torch.testing.assert_close(turned, features)
        torch.testing.assert_close(other.levels[0].normals, shape.levels[0].normals @ turn.T)
        torch.manual_seed(0)
        model = drawn(
            models.MeshTransformer(features.shape[1], 3, 8, 2, 1, spectrum=2, readout="shape")
        )
        answer = model(features, shape)
        torch.testing.assert_close(model(turned, other), answer, rtol=0, atol=1e-6)
        batch = torch.arange(2).repeat_interleave(len(POS))
        two = mesh_elements(
            torch.cat((POS * 0.7, POS)), torch.cat((FACES, FACES + len(POS))), kind, batch=batch
        )
        torch.testing.assert_close(model(*two)[1:], answer, rtol=0, atol=1e-6)


def mesh_ends(edges):
    """The two vertices of each edge, from the middle that is its place."""
    middle = (POS[:, None] + POS) / 2
    away = (middle[None] - edges[1].levels[0].pos[:, None, None]).square().sum(-1)
    return [tuple(sorted(divmod(int(place), len(POS)))) for place in away.flatten(1).argmin(1)]


def test_eigenvectors_are_made_once_for_a_graph():
    model = drawn(models.MeshTransformer(4, 3, 8, 2, 1, spectrum=3, edges=("offset", "distance")))
    graph = mesh_vertices(FACES, self_loops=False)
    kept = []
    for _ in range(3):
        model(torch.randn(len(POS), 4).double(), hierarchy(POS, graph=graph))
        kept.append(len(graph._memo))
    assert kept[1] == kept[2]
