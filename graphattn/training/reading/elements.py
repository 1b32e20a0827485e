"""Tokens of meshes that are not their vertices: faces and edges, with labels of their own."""

from typing import Any

import torch
from torch import Tensor

from ...arguments import one_of
from ...errors import OptionError
from ...graphs.mesh.rings import mesh_edge_ends
from ...shapes import Shape, ShapeFolder

#: What a token is called.
TOKEN = {"": "point", "faces": "face", "edges": "edge"}


def elements_of(elements: str | None, shapes: ShapeFolder) -> str:
    """Tokens of meshes: "faces", "edges", or "" for vertices and points; by default by the labels.

    Labels are of faces or edges where there are as many of them.
    """
    meshes = "face" in shapes[0]
    if elements is not None:
        one_of(elements, "elements", ("vertices", "faces", "edges"))
        if not meshes:
            raise OptionError(
                f"elements={elements!r} needs meshes with faces, got {shapes.name(0)} without"
            )
        if elements == "vertices":
            return ""
        return elements
    num_labels = len(shapes.labels[0])
    if not meshes or num_labels in (1, int(shapes.sizes[0])):
        return ""
    return next(
        (name for name in ("faces", "edges") if num_labels == count_of(shapes[0], name)), ""
    )


def count_of(shape: Any, elements: str) -> int:
    """Tokens of a shape; of a cloud its points."""
    if not elements or "face" not in shape:
        return len(shape.pos)
    if elements == "faces":
        return int(shape.face.shape[1])
    return len(mesh_edge_ends(shape.face.T))


def at_vertices(shape: Any, values: Tensor) -> Tensor:
    """Values of edges at vertices, (N,) or (N, k): means, or the most frequent integers."""
    ends = mesh_edge_ends(shape.face.T)
    if values.dtype.is_floating_point:
        summands = values
    else:
        summands = torch.nn.functional.one_hot(values.clamp(min=0)).float()
    total = summands.new_zeros(len(shape.pos), *summands.shape[1:])
    total.index_add_(0, ends.T.flatten(), torch.cat((summands, summands)))
    if not values.dtype.is_floating_point:
        return total.argmax(1)
    degrees = torch.bincount(ends.flatten(), minlength=len(shape.pos)).clamp(min=1)
    return total / degrees.view(-1, *[1] * (summands.ndim - 1))


def coloured_tokens(shape: Any, elements: str, colour: Tensor, value: Tensor) -> Shape:
    """A mesh with the colour and the prediction of each face or edge.

    Its vertices have colours, too, if the tokens are edges.
    """
    if elements == "faces":
        return Shape(pos=shape.pos, face=shape.face, face_color=colour, face_prediction=value)
    ends = mesh_edge_ends(shape.face.T).int()
    vertex_colour = (at_vertices(shape, colour) * 255).round() / 255
    edges: dict[str, Any] = {
        "edge_vertex1": ends[:, 0],
        "edge_vertex2": ends[:, 1],
        "edge_prediction": value,
    }
    return Shape(pos=shape.pos, face=shape.face, color=vertex_colour, **edges)
