"""Models by name, with the default inputs of each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...arguments import one_of
from ...errors import GraphAttnError, OptionError
from ...graphs import Hierarchy, HierarchyRecipe
from ...models import (
    PCT,
    EncodeProcessDecode,
    MeshGraphNet,
    MeshTransformer,
    PointTransformer,
    PointTransformerV2,
    PointTransformerV3,
    Simulator,
    StratifiedTransformer,
    UNet,
)
from ...models.points.levels import of_clouds
from ...models.points.standard import standardized
from ..reading.inputs import ShapeInputs
from ..reading.levels import OnCells
from ..reading.simulations import Simulation
from .best import Best
from .forest import Forest
from .stencil import Stencil

_NEAR = "knn(..., 16, self_loops=True, clamp=True)"
_FEW = "knn(..., 12, self_loops=True, clamp=True)"
_INVARIANT = ("distance", "outward", "spread")


class Pointwise(nn.Module):
    """A perceptron of each point, and of the mean and maximum over a shape's points: no edges."""

    def __init__(
        self, features: int, out_dim: int, width: int = 64, *, readout: str = "node"
    ) -> None:
        super().__init__()
        self.readout = readout
        self.body = nn.Sequential(
            nn.Linear(features, width),
            nn.GELU(),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.norm = nn.LayerNorm(width)
        if readout == "node":
            last = width
        else:
            last = 2 * width
        self.head = nn.Sequential(nn.Linear(last, width), nn.GELU(), nn.Linear(width, out_dim))

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Answers for points (N, out), or for B shapes (B, out)."""
        x = self.norm(self.body(x))
        if self.readout == "shape":
            x = torch.cat((of_clouds(x, shape, "mean"), of_clouds(x, shape, "max")), -1)
        return self.head(x)


def _v3(features: int, out_dim: int, *, readout: str, **options: Any) -> nn.Module:
    return OnCells(PointTransformerV3(features, out_dim, readout=readout, **options), readout)


def _weather(features: int, out_dim: int, *, readout: str, **options: Any) -> nn.Module:
    if readout != "node":
        raise OptionError(
            "model='encode-process-decode' answers for points, got a task of whole shapes"
        )
    return EncodeProcessDecode(features, out_dim, **options)


class Preset(NamedTuple):
    """A model and its inputs."""

    make: Callable[..., nn.Module]
    shape: dict[str, Any]
    """Arguments of a model that answers for shapes."""
    node: dict[str, Any]
    """Arguments of a model that answers for points."""
    of_shape: ShapeInputs
    of_nodes: ShapeInputs
    augment: tuple[str, ...] = ()
    signals: bool = False
    """True if it reads colours and normals of the files as relative signals."""
    lines: bool = False
    """True if it reads along the lines of curves and trees."""


def _same(
    make: Callable[..., nn.Module], options: dict[str, Any], reads: ShapeInputs, *augment: str
) -> Preset:
    """A preset with the same options and inputs for points and shapes."""
    return Preset(make, options, options, reads, reads, augment)


_NODES = ShapeInputs(
    _INVARIANT,
    "pca",
    ratio=(0.25, 0.25),
    graph=(_FEW, _FEW, "full(...)"),
    down="knn(..., 12, clamp=True)",
)
_TURNED = ShapeInputs(("position",), ratio=(0.25, 0.25), graph=(_NEAR,) * 3)
_WHOLE = ShapeInputs(("position",), ratio=(0.25,), graph=("full(...)",) * 2)
_CELLS = ShapeInputs(("position",), cell=(0.1, 0.2, 0.4), patch=64)
_RING = ShapeInputs(("constant",), "faces", graph=("mesh_vertices(...)",))
_RINGS = replace(
    _RING,
    ratio=(0.125,),
    graph=("mesh_vertices(...)", "full(...)"),
    down="knn(..., 12, clamp=True)",
)
_BENT = ["bend", "distance", "pair"]
_THREE: dict[str, Any] = {"widths": [32, 64, 128], "depths": [1, 1, 1]}
_LITE: dict[str, Any] = {
    **{
        "widths": [36, 72, 144],
        "depths": [1, 1, 2],
        "back_widths": [36, 72],
        "back_depths": 0,
        "head_dim": 18,
    },
    **{
        "norm": "layer",
        "convs": [True, True, False],
        "attends": [False, False, True],
        "rotary": 100.0,
    },
}


def _windows(side: float) -> str:
    """A level of the Stratified Transformer: windows, and the same moved by half of their side."""
    return (
        f"stratified_windows(..., {side}, 0.0625), stratified_windows(..., {side}, 0.0625, "
        f"shift={side / 2})"
    )


def _cubes(side: float) -> str:
    """A level of Swin3D, likewise."""
    return f"voxel_windows(..., {side}), voxel_windows(..., {side}, shift={side / 2})"


_UNET = Preset(
    UNet,
    {"widths": [32, 32], "depths": [0, 2], "edges": ["distance", "alignment"], "edge_dim": 8},
    {
        "widths": [32, 32, 32],
        "depths": [0, 1, 2],
        "edges": ["distance", "alignment"],
        "edge_dim": 8,
    },
    ShapeInputs(_INVARIANT, "pca", ratio=(0.25,), graph=(_NEAR, _FEW)),
    _NODES,
)
_ALONG = ShapeInputs(
    ("distance", "spread", "degree"), graph=("mesh_vertices(..., hops=4, self_loops=True)",)
)
_ALONG_LOCAL = replace(_ALONG, features=(*_ALONG.features, "local"))
_CURVE = _same(
    MeshTransformer,
    {"embed_dim": 32, "num_layers": 3, "spectrum": 0, "edges": ["distance", "arc", "turn"]},
    _ALONG,
)._replace(lines=True)
MODELS: dict[str, Preset] = {
    "unet": _UNET,
    "best": _UNET._replace(
        make=Best,
        of_shape=replace(_UNET.of_shape, features=(*_INVARIANT, "local")),
        of_nodes=replace(_UNET.of_nodes, features=(*_INVARIANT, "local")),
    ),
    "point-transformer": _same(PointTransformer, _THREE, _TURNED, "rotation"),
    "point-transformer-v2": _same(
        PointTransformerV2,
        _THREE,
        ShapeInputs(("position",), cell=(0.2, 0.4), graph=(_NEAR,) * 3),
        "rotation",
    ),
    "point-transformer-v3": _same(
        _v3,
        {**_THREE, "back_widths": [32, 64], "back_depths": 1, "norm": "layer"},
        _CELLS,
        "rotation",
    ),
    "litept": _same(_v3, _LITE, _CELLS, "rotation"),
    "pct": _same(PCT, {"widths": [32, 64], "num_layers": 2}, _WHOLE, "rotation"),
    "stratified-transformer": _same(
        StratifiedTransformer,
        {"widths": [32, 64, 128], "depths": 2, "num_heads": [2, 4, 8], "step": 0.05, "reach": 16},
        ShapeInputs(("position",), ratio=(0.25, 0.25), graph=tuple(map(_windows, (0.4, 0.8, 1.6)))),
        "rotation",
    ),
    "swin3d": _same(
        StratifiedTransformer,
        {"widths": [32, 64, 128], "depths": 2, "num_heads": [2, 4, 8], "step": 0.05, "reach": 16},
        ShapeInputs(("position",), ratio=(0.25, 0.25), graph=tuple(map(_cubes, (0.4, 0.8, 1.6)))),
        "rotation",
    )._replace(signals=True),
    "encode-process-decode": _same(
        _weather,
        {"embed_dim": 32, "num_layers": 3, "edges": ["distance", "alignment"]},
        ShapeInputs(
            _INVARIANT, "pca", ratio=(0.25,), graph=(_NEAR, _FEW), down="knn(..., 12, clamp=True)"
        ),
    ),
    "mesh": Preset(
        MeshTransformer,
        {"embed_dim": 32, "num_layers": 3, "spectrum": 0, "edges": _BENT},
        {"embed_dim": 32, "num_layers": 2, "spectrum": 0, "edges": _BENT},
        _RING,
        _RING,
    ),
    "curve": _CURVE,
    "best-curve": _CURVE._replace(
        make=partial(Best, network=MeshTransformer),
        of_shape=_ALONG_LOCAL,
        of_nodes=_ALONG_LOCAL,
    ),
    "mesh-unet": _same(
        UNet, {"widths": [32, 32], "depths": [1, 2], "edges": _BENT, "edge_dim": 8}, _RINGS
    ),
    "forest": _same(Forest, {}, ShapeInputs(("local",), "pca")),
    "perceptron": Preset(
        Pointwise,
        {},
        {},
        ShapeInputs(("position", "distance")),
        ShapeInputs(("position", "distance")),
        ("rotation",),
    ),
}


#: Models in which a network, a forest or their mean answers.
CHOOSING = ("best", "best-curve")


class Simulated(NamedTuple):
    """A model that simulates, and the graphs of its levels below the finest."""

    make: Callable[..., nn.Module]
    options: dict[str, Any]
    coarser: tuple[str, ...] = ()


_FLAT = ["offset", "distance"]
SIMULATED = {
    "mesh": Simulated(
        MeshTransformer, {"embed_dim": 32, "num_layers": 5, "spectrum": 0, "edges": _FLAT}
    ),
    "unet": Simulated(
        UNet, {"widths": [32, 32, 32], "depths": [1, 1, 2], "edges": _FLAT}, (_FEW, _FEW)
    ),
    "encode-process-decode": Simulated(
        EncodeProcessDecode, {"embed_dim": 32, "num_layers": 4, "edges": _FLAT}, (_FEW,)
    ),
    "mesh-graph-net": Simulated(MeshGraphNet, {"embed_dim": 32, "num_layers": 5, "edges": _FLAT}),
    "perceptron": Simulated(Pointwise, {}),
    "stencil": Simulated(Stencil, {}),
}


def simulator(
    name: str, options: dict[str, Any], simulation: Simulation, levels: HierarchyRecipe | None
) -> Simulator:
    """The simulator around the model of that name."""
    make = SIMULATED[one_of(name, "model", tuple(SIMULATED))].make
    with _made(name):
        return Simulator(
            lambda features, out_dim: make(features, out_dim, **options),
            simulation.window,
            levels=levels,
            noise=simulation.noise,
            pushforward=simulation.pushforward,
        )


def build(
    name: str, options: dict[str, Any], features: int, out_dim: int, readout: str
) -> nn.Module:
    """The model of that name for so many features, with options beside those of its table."""
    preset = MODELS[one_of(name, "model", tuple(MODELS))]
    arguments = {**(preset.shape if readout == "shape" else preset.node), **options}
    with _made(name):
        return standardized(preset.make(features, out_dim, readout=readout, **arguments))


@contextmanager
def _made(name: str) -> Iterator[None]:
    try:
        yield
    except GraphAttnError:
        raise
    except Exception as error:  # options are any JSON
        got = f"{type(error).__name__}: {str(error)[:200]}"
        raise OptionError(f"model_options: {name} takes none such: {got}") from None
