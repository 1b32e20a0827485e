"""Inputs of a model: features of points, and levels with graphs; positions centred and scaled."""

import ast
import math
import os
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from ...arguments import number, one_of, positive, whole
from ...errors import LoaderError, OptionError
from ...graph import AttentionGraph, Pattern
from ...graph.modes import cached_property
from ...graphs import Hierarchy, HierarchyRecipe, hierarchy, knn, mesh_vertices
from ...graphs.expression import from_expression
from ...graphs.points.hierarchy import Level
from ...io.reading import fault
from ...nn import local_descriptors, local_pca, mesh_elements, mesh_normals, shape_descriptors
from ...pyg import Data
from ...shapes.folder import plain_name
from ...shapes.shape import LATTICE
from .levels import on_icosphere, redrawn, with_cells
from .placing import placed, radius_of, sampled
from .simulations import Simulation

_FINE, _COARSE = 10, 20  # neighbours that normals and spreads are made of
#: What is read of atoms: the number of an element is no amount, and energies grow with atoms.
OF_ATOMS = ("species", "composition")
ELEMENTS = 119  # atomic numbers, and 0 of an unknown one
NORMALS = ("none", "pca", "faces", "normal")


@dataclass(frozen=True)
class ShapeInputs:
    r"""The features and graphs of a shape that a model reads.

    ==================  ====  ==========================================================================================
    ``"constant"``      1     1
    ``"position"``      3     from the mean of the points
    ``"distance"``      1     of the point from that mean
    ``"log_radius"``    1     logarithm of the shape's radius in its own units, which are lost where ``scale`` is 0
    ``"outward"``       1     :math:`|\cos|` of the angle between that direction and the normal
    ``"spread"``        6     standard deviations of the 20 and of the 10 nearest points along their principal axes
    ``"normals"``       3     unit normals
    ``"local"``         27    covariances of the 10, 30 and 100 nearest points: :func:`graphattn.nn.local_descriptors`;
                              36 with an axis up
    ``"shape"``         any   descriptors of the whole shape, the same at each point, which a forest reads:
                              :func:`graphattn.nn.shape_descriptors`
    ``"above_ground"``  1     height above the local ground along ``upward``, of a scan that is thinned by ``grid``
    ``"degree"``        1     points that the point is joined with, by lines of a curve or a tree
    ``"species"``       119   1 at the atomic number ``z`` of the atom, else 0
    ``"composition"``   119   atoms of each atomic number in the shape, the same at each atom
    ``"upright"``       2     :math:`|\cos|` of ``upward``'s angles to the normals of the 20 and the 10 nearest points
    ``"element"``       4, 5  of a face its area and angles, of an edge its dihedral angle, the angles that see it, and
                              ratios: :func:`graphattn.nn.mesh_elements`
    a property          any   of the files, by its name: ``"color"``
    ==================  ====  ==========================================================================================

    All but positions, normals and properties stay the same when a shape is turned.

    Args:
        features: Words of the table.
        normals: "pca" (of 20 neighbours, without a sign), "faces" (of vertices, or of the faces
            that points are drawn on), "normal" (the file's), or "none".
        scale: Divisor of positions, in their own units; 0 is each shape's own radius.
        sample: Points that are drawn of each shape, on its faces if it has some; 0 takes the points
            as they are.
        ratio: Of the levels, as in :func:`graphattn.graphs.hierarchy`.
        cell: Of the levels instead, likewise.
        patch: Points of a patch along curves: the levels are then the points and, of cells of these
            sides, those of :func:`graphattn.graphs.serialized_hierarchy`, without recipes.
        graph: Recipes as expressions, one for each level, or several for its layers in turn, with
            commas between them; none for a model without edges. Without ``ratio`` and ``cell`` the
            second of two is that of an icosphere, ``icosphere(3)``, whose points are coarser ones.
        down: Of a coarser level's points from the finer ones.
        up: Of a finer level's points from the coarser ones.
        elements: What a token of a mesh is: "faces" or "edges"; "" is a point or a vertex.
        signals: What levels carry for relative signals: "color" and "normals", from -1 to 1.
        redrawn: Seed of random graphs with the same in-degrees in the place of all of these, drawn
            for each shape; ``None`` keeps them.
        upward: "x", "y" or "z", the axis that points up; "" is none. Shapes are then turned about
            it alone in training.
        grid: Side of the cells that scans are thinned to, a point for each, in their own units; 0
            for none.
        block: Side of the blocks that they are cut into, likewise; 0 is that of some 8,192 points,
            for large scans.
        simulation: Settings where shapes are trajectories.
    """

    features: tuple[str, ...]
    normals: str = "none"
    scale: float = 0.0
    sample: int = 0
    ratio: tuple[float, ...] = ()
    cell: tuple[float, ...] = ()
    patch: int = 0
    graph: tuple[str, ...] = ()
    down: str = "knn(..., 16, clamp=True)"
    up: str = "knn(..., 4, clamp=True)"
    elements: str = ""
    signals: tuple[str, ...] = ()
    redrawn: int | None = None
    upward: str = ""
    grid: float = 0.0
    block: float = 0.0
    simulation: Simulation | None = None

    def __post_init__(self) -> None:
        if not self.features:
            raise OptionError("features must name at least one, such as position, got none")
        one_of(self.normals, "normals", NORMALS)
        number(self.scale, "scale", "a finite number >= 0", lambda x: 0 <= x < math.inf)
        one_of(self.upward, "upward", ("", "x", "y", "z"))
        for name in ("grid", "block"):
            number(getattr(self, name), name, "a finite number >= 0", lambda x: 0 <= x < math.inf)
        if self.block and not self.block >= 4 * self.grid > 0:
            raise OptionError(
                f"block must be 4 cells of the grid or more, got {self.block} and grid={self.grid}"
            )
        reads_points = not (self.sample or self.elements)
        if self.grid and not reads_points:
            raise OptionError(
                "grid is for points that have labels each, without sample and elements"
            )
        if whole(self.sample, "sample", 0) == 1:
            raise OptionError("sample must be 0 for all points, or at least 2, got 1")
        for ratio in self.ratio:
            number(ratio, "ratio", "a number in (0, 1]", lambda x: 0 < x <= 1)
        for side in self.cell:
            positive(side, "cell")
        if whole(self.patch, "patch", 0) and not self.cell:
            raise OptionError("patch needs the sides of cells, got cell=()")
        one_of(self.elements, "elements", ("", "faces", "edges"))
        if self.sample and self.elements:
            raise OptionError(f"sample must be 0 where a token is no point, got {self.sample}")
        for word in self.signals:
            one_of(word, "signals", ("color", "normals"))
        if self.redrawn is not None:
            whole(self.redrawn, "redrawn", 0)

    def __call__(self, shape: Any, name: str) -> Data:
        """The shape as the model reads it: ``x`` (N, F), ``levels``, ``y``.

        Errors call it ``name``.
        """
        if self.simulation is not None:
            return shape
        if self.graph:
            _ = self.recipe  # an expression that is wrong is no fault of the file
        try:
            return self._data(shape, name)
        except LoaderError:
            raise
        except ValueError as error:  # of builders, and of what is missing
            raise LoaderError(f"{name}: {error}") from error

    def _data(self, shape: Any, name: str) -> Data:
        if self.normals == "faces" and "face" not in shape:
            raise fault(name, "a mesh with faces", "points alone", "a model of points")
        if bool(shape.get("pbc", torch.zeros(3)).any()):
            raise fault(
                name,
                "a shape that does not repeat",
                "pbc",
                "a model of your own on ga.graphs.radius(pos, r, cell=cell), or set pbc to False",
            )
        fix = "another file; in a text a column order numbers the points along a curve"
        if "edge_index" in shape:
            fix = "sample=0 (--sample 0): points that are drawn lose their lines"
        composition = None
        if "composition" in self.features and "z" in shape:  # of all atoms, not of those drawn
            composition = _elements(shape, len(shape.pos), name).sum(0)
        if self.sample:
            shape = sampled(shape, self.sample)
        pos = placed(shape.pos, self.scale, name)
        faces: Any = None
        if "face" in shape:
            faces = shape.face.T
        elif "edge_index" in shape:
            faces = shape.edge_index.T
        elif "degree" in self.features or (self.graph and self.recipe.of_faces):
            raise fault(name, "faces, or lines between points", "points alone", fix)
        if "face" not in shape and self.elements:
            raise fault(name, "a mesh with faces", "points alone", "a model of points")
        element = None
        normals = None
        if self.elements:
            element, tokens = mesh_elements(pos, faces, self.elements)
            pos = tokens.levels[0].pos
            normals = tokens.levels[0].normals
        local = []
        if self.normals == "pca" or {"spread", "upright"} & {*self.features}:
            neighbours = [knn(pos, k, self_loops=True, clamp=True) for k in (_COARSE, _FINE)]
            local = [local_pca(graph, pos) for graph in neighbours]
        if normals is None:
            normals = self._normals(shape, pos, local, name)
        descriptors = None
        if {"local", "shape"} & {*self.features}:
            signed = normals
            if self.normals == "pca":  # they have no sign
                signed = None
            descriptors = local_descriptors(pos, signed, upward=self.upward)
        computed = {
            "element": element,
            "normals": normals,
            "local": descriptors,
            "composition": composition,
        }
        parts = [self._feature(word, shape, pos, computed, local, name) for word in self.features]
        if self.patch:
            levels = with_cells(pos, self.cell, self.patch)
        elif not self.graph:
            levels = Hierarchy((Level(pos, None, (), normals=normals),))
        else:
            levels = self.recipe(pos, faces=faces, normals=normals)
        if self.signals:
            carried: dict[str, Any] = {
                "color": lambda: 2 * _property(shape, "color", len(pos), name, 3) - 1,
                "normals": lambda: normals,
            }
            levels = levels.with_signals(torch.cat([carried[word]() for word in self.signals], 1))
        levels = self._redrawn(levels, name)
        widths = tuple(part.shape[1] for part in parts)
        return Data(
            x=torch.cat(parts, 1),
            y=shape.get("y"),
            levels=levels,
            num_nodes=len(pos),
            widths=widths,
        )

    def levels_of(self, trajectory: Any, pos: Tensor) -> Hierarchy:
        """The hierarchy of a trajectory whose nodes are at ``pos`` (N, d)."""
        levels = self.recipe(pos.float(), faces=trajectory.cells or None)
        return self._redrawn(levels, trajectory.name)

    def _redrawn(self, levels: Hierarchy, name: str) -> Hierarchy:
        if self.redrawn is None:
            return levels
        return redrawn(levels, crc32(os.fsencode(name), self.redrawn))

    @cached_property
    def recipe(self) -> HierarchyRecipe:
        """The recipe of the hierarchy."""
        globe = {}
        if len(self.graph) == 2 and not self.ratio and not self.cell:
            globe = on_icosphere(self.graph[1])
        if globe:
            finest = recipes_in(self.graph[0])
            with_globe: HierarchyRecipe = hierarchy(..., graph=finest, **globe)
            return with_globe
        graphs: list[Any] = [recipes_in(text) for text in self.graph]
        down = _recipe(self.down)
        up = _recipe(self.up)
        recipe: HierarchyRecipe = hierarchy(
            ..., ratio=self.ratio or None, cell=self.cell or None, graph=graphs, down=down, up=up
        )
        return recipe

    def _normals(
        self, shape: Any, pos: Tensor, local: list[tuple[Tensor, Tensor]], name: str
    ) -> Tensor | None:
        if self.normals == "none":
            return None
        if self.normals == "pca":
            return local[0][0]
        if self.normals == "faces":
            if "face" in shape:
                return mesh_normals(pos, shape.face.T)
            return shape.face_normal
        return normalize(_property(shape, "normal", len(pos), name, 3), dim=1)

    def _feature(
        self,
        word: str,
        shape: Any,
        pos: Tensor,
        computed: dict[str, Tensor | None],
        local: list[tuple[Tensor, Tensor]],
        name: str,
    ) -> Tensor:
        ready = computed.get(word)
        if ready is not None:
            return ready.expand(len(pos), -1)  # composition is that of the whole shape
        if word == "constant":
            return torch.ones(len(pos), 1)
        if word == "position":
            return pos
        if word == "degree" and "edge_index" in shape:
            # files may have each line in one direction, or in both
            lines = mesh_vertices(shape.edge_index.T, len(pos))
            return lines.in_degree.float()[:, None]
        if word == "species" and "z" in shape:
            return _elements(shape, len(pos), name)
        if word == "distance":
            return pos.norm(dim=1, keepdim=True)
        if word == "log_radius":
            return radius_of(shape.pos).clamp(min=1e-30).log().float().expand(len(pos), 1)
        if word == "spread":
            return torch.cat([spread for _, spread in local], 1)
        descriptors = computed["local"]
        normals = computed["normals"]
        if word == "shape" and descriptors is not None:
            return shape_descriptors(pos, normals, descriptors).expand(len(pos), -1)
        if word == "upright" and self.upward:
            return torch.stack(
                [normal[:, "xyz".index(self.upward)].abs() for normal, _ in local], 1
            )
        if word in ("outward", "normals"):
            if normals is None:
                ways = "give normals='pca', or features='normal' for those of the file"
                raise OptionError(f"features={word!r} needs normals, got none; {ways}")
            return (normalize(pos, dim=1) * normals).sum(1, keepdim=True).abs()
        return _property(shape, word, len(pos), name)

    def turned(self, data: Data, matrix: Tensor) -> Data:
        """The shape rotated or mirrored by a matrix (3, 3), with the same graphs."""
        matrix = matrix.float()

        def moved(x: Tensor | None) -> Any:
            if x is None:
                return None
            return x @ matrix.T

        def signals(x: Tensor | None) -> Any:
            if x is None or "normals" not in self.signals:
                return x
            at = 3 * self.signals.index("normals")
            return torch.cat((x[:, :at], moved(x[:, at : at + 3]), x[:, at + 3 :]), 1)

        levels = [
            replace(n, pos=moved(n.pos), normals=moved(n.normals), signals=signals(n.signals))
            for n in data.levels.levels
        ]
        x = data.x.clone()
        first = 0
        for word, width in zip(self.features, data.widths, strict=True):
            if word in ("position", "normals"):
                x[:, first : first + width] = moved(x[:, first : first + width])
            first += width
        return Data(
            x=x, y=data.y, levels=Hierarchy(tuple(levels)), num_nodes=len(x), widths=data.widths
        )


def recipes_in(text: str) -> tuple[Pattern, ...]:
    """Recipes of expressions with commas between them."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return (_recipe(text),)  # which from_expression refuses
    if isinstance(node, ast.Tuple):
        return tuple(_recipe(ast.unparse(part)) for part in node.elts)
    return (_recipe(text),)


def check_sample(sample: int, readout: str) -> None:
    """Refuse to draw points of shapes whose points have labels."""
    if sample and readout == "node":
        raise OptionError(f"sample must be 0 where each point has a label, got {sample}")


def rows_of(shape: Any, size: int) -> dict[str, Tensor]:
    """The tensors of a shape that have so many rows, by name."""
    apart = (*LATTICE, "edge_index")
    tensors = {name: x for name, x in shape.items() if torch.is_tensor(x) and name not in apart}
    return {name: x for name, x in tensors.items() if x.shape[:1] == (size,)}


def _elements(shape: Any, count: int, name: str) -> Tensor:
    """1 at the atomic number of each atom, else 0 (N, 119)."""
    z = _property(shape, "z", count, name, 1)[:, 0]
    if z.min() < 0 or z.max() >= ELEMENTS or z.frac().any():
        got = f"{z.min():.6g} to {z.max():.6g}"
        raise fault(name, "atomic numbers z from 0 to 118", got, "repair it, or other features")
    return one_hot(z.long(), ELEMENTS).float()


def _property(shape: Any, word: str, size: int, name: str, width: int | None = None) -> Tensor:
    """A property of the file for each point, (N, k), or its first ``width`` columns.

    CloudCompare's name of it is read, too.
    """
    rows = rows_of(shape, size)
    values = rows.get(
        word, next((x for key, x in rows.items() if plain_name(key) == plain_name(word)), None)
    )
    if values is None:
        properties = ", ".join(key for key in rows if key != "pos") or "none"
        raise fault(
            name,
            f"the property {word} of each point",
            f"none; its properties: {properties}",
            "other features",
        )
    values = values.float().reshape(size, -1)[:, :width]
    if width not in (None, values.shape[1]):
        raise fault(name, f"{word} (N, {width})", f"(N, {values.shape[1]})", "another model")
    if not torch.isfinite(values).all():
        raise fault(name, f"finite {word}", "NaN or infinity", "repair it, or other features")
    return values


def in_words_of_today(text: str) -> str:
    """A recipe, or a text with recipes, of a run of version 0.2."""
    return text.replace("include_self=", "self_loops=")


def _recipe(text: str) -> Pattern:
    pattern = from_expression(in_words_of_today(text))
    if isinstance(pattern, AttentionGraph):
        raise OptionError(
            f"graph must be open in its positions, such as 'knn(..., 16)', got {text!r}"
        )
    return pattern
