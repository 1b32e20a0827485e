"""Options of a training: what callers and the command line may set, and what a run stores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..arguments import number, positive, whole
from ..errors import OptionError
from ..io.fields import described, option
from ..io.reading import PathLike
from ..shapes import ShapeFolder
from .reading.simulations import TrajectoryFolder

# groups of options of the command line, in its order
RUN = "The run"
LABELS = "Labels"
MODEL = "The model, and what it reads"
TRAINING = "Training"
SPLIT = "The part that is held out, and controls"
SCENES = "Scenes"
SIMULATION = "Simulations (--task simulate)"
MACHINE = "The machine"


@described
@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Settings of the training loop whose defaults are the same for all shapes."""

    seed: int = option(
        0,
        "Seed of all that is drawn: the split, parameters, orders, changes, dropout.",
        group=SPLIT,
        least=0,
    )
    lr: float = option(3e-3, "Largest learning rate of AdamW.", group=TRAINING)
    weight_decay: float = option(0.02, "Weight decay of AdamW.")
    workers: int = option(
        0,
        "Processes that make batches: shapes changed in training, their graphs, and the plans that "
        "a step needs of these. Numbers do not depend on it. Each holds two batches or three in "
        "shared memory.",
        group=MACHINE,
        least=0,
    )
    seconds: float = option(
        30.0, "Time between two checkpoints inside an epoch; there is one at its end, too."
    )
    device: str = option("cpu", "Device of the model: cpu, cuda.", group=MACHINE)
    amp: bool = option(
        False,
        "Steps in bfloat16 where torch's autocast has it; parameters, losses and "
        "validation stay in float32.",
        group=TRAINING,
    )
    shard: bool = option(
        False,
        "Share the points of every batch among the processes of torchrun, in place of its shapes.",
        group=MACHINE,
    )
    average: float = option(
        0.0,
        "Decay of an exponential average of the parameters, which is validated and kept; 0 for "
        "none, 0.99 for some 100 steps.",
        group=TRAINING,
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.metadata.get("least") is not None and value is not None:
                whole(value, item.name, item.metadata["least"])
        whole(self.workers, "workers", 0, below=1 << 10)
        positive(self.lr, "lr")
        for name in ("weight_decay", "seconds"):
            number(getattr(self, name), name, "a finite number >= 0", lambda x: 0 <= x < math.inf)
        number(self.average, "average", "a number in [0, 1)", lambda x: 0 <= x < 1)


@dataclass(frozen=True)
class Schedule(LoopSettings):
    """Settings of the loop of one run, as ``run.json`` stores them.

    The learning rate of AdamW rises to ``lr`` for 15 % of the steps and falls along a cosine, to
    almost 0 at the last.
    The other settings are those of :class:`LoopSettings`.

    Args:
        epochs: Largest number of epochs.
        points: Points of a batch.
        patience: Epochs without a better one on the validation part, after which training stops; 0
            for none.
    """

    epochs: int
    points: int
    patience: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.epochs, "epochs", 1)
        whole(self.points, "points", 1)
        whole(self.patience, "patience", 0)

    def ended(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """True once the lines of a log are those of all epochs, or of too many without a better."""
        epochs = len(history)
        best = max((n for n, line in enumerate(history, 1) if line["best"]), default=0)
        if epochs >= self.epochs:
            return True
        return 0 < self.patience <= epochs - best

    def rate(self, done: float) -> float:
        """Learning rate of the step after a share of all steps."""
        if done < 0.15:
            return self.lr * (0.04 + 0.96 * (1 - math.cos(math.pi * done / 0.15)) / 2)
        return self.lr * (1 + math.cos(math.pi * min(1.0, (done - 0.15) / 0.85))) / 2


@described
@dataclass(frozen=True, kw_only=True)
class Options(LoopSettings):
    """Options of :func:`train`, and of ``graphattn train``, with those of :class:`LoopSettings`.

    What is ``None`` depends on the shapes: a run stores the value that was chosen.
    """

    task: str | None = option(
        None,
        "classify, segment or regress; by default the task that the labels are for. classify also "
        "reads a folder for each class where points have labels, which are learned by default. "
        "simulate reads trajectories, a file each.",
        group=LABELS,
    )
    label: str | None = option(
        None,
        "Property of each point or face that is the label; by default label, or else the "
        "classification of LAS.",
        group=LABELS,
        metavar="NAME",
    )
    ignore: Sequence[int] = option(
        (),
        "Values of the label that are no label, such as 0 for points that were never classified.",
        group=LABELS,
        metavar="VALUE,..",
    )
    names: Sequence[str] | None = option(
        None,
        "Names of the classes of points: of the values 0, 1, ... without those ignored, or a file "
        "with a value and a name a line.",
        group=LABELS,
        metavar="NAME,..|FILE",
    )
    elements: str | None = option(
        None,
        "Tokens of a mesh for the model mesh: vertices, faces or edges; by default those that have "
        "labels. Labels of faces are the property label of a .ply's faces; those of edges (in the "
        "order of graphattn.shapes.mesh_edge_ends) and of faces also y of a .npz.",
        group=LABELS,
    )
    balance: bool | None = option(
        None,
        "Weight each class in a network's loss by 1 over the root of its share of the labels; by "
        "default where points have classes and one is five times as frequent as another.",
        group=LABELS,
    )
    model: str | None = option(
        None,
        "unet, curve, point-transformer (also -v2, -v3), litept, stratified-transformer, swin3d, pct, "
        "mesh, mesh-unet, encode-process-decode, perceptron, forest; to simulate, also mesh-graph-net "
        "and stencil; or best: a network and a forest "
        "beside it, which answers by the one with the better score on the validation "
        "part (of fewer than 100 whole shapes: in 4 folds), or by the mean of both. By default "
        "curve for curves and trees, which reads along their lines; unet, which reads nearest points; or mesh-unet to "
        "regress a number for each vertex of meshes: along their edges, and between some vertices "
        "of all of it.",
        group=MODEL,
    )
    graph: str | None = option(
        None,
        "Expression of a recipe, such as 'knn(..., 16)', or of the edges of meshes, curves and trees "
        "'mesh_vertices(..., hops=4)', for all levels of the hierarchy, or one "
        "for each with ; between them; by default the model's. On a sphere the second of two may be "
        "icosphere(3), whose points are the coarser level.",
        group=MODEL,
        metavar="RECIPE",
    )
    features: Sequence[str] | None = option(
        None,
        "Features of the points: distance, outward, spread, log_radius, position, normals, "
        "constant, or properties of the files; by default the model's, and the files' colours.",
        group=MODEL,
        metavar="WORD,..",
    )
    model_options: Mapping[str, Any] | None = option(
        None,
        """Arguments of the model, such as {"widths": [64, 64]}.""",
        group=MODEL,
        metavar="JSON",
    )
    augment: Sequence[str] | None = option(
        None,
        "Changes of a shape in training: rotation, mirror, stretch, drop, jitter.",
        group=TRAINING,
        metavar="WORD,..",
    )
    epochs: int | None = option(
        None,
        "Largest number of epochs; by default as many as make 2.5 million points, from 10 to 60.",
        group=TRAINING,
        least=1,
    )
    sample: int | None = option(
        None,
        "Points drawn of each shape that has more, on its faces if it has some; 0 takes all. By "
        "default 512 for an answer for each shape, else all.",
        group=TRAINING,
        least=0,
    )
    points: int | None = option(
        None, "Points of a batch; by default those of up to 16 shapes.", group=TRAINING, least=1
    )
    patience: int | None = option(
        None,
        "Epochs without a better one on the validation part, after which training stops; 0 for "
        "none. By default half of the epochs, 8 at least.",
        group=TRAINING,
        least=0,
    )
    val: float = option(0.1, "Share of the shapes by which an epoch is chosen.", group=SPLIT)
    test: float = option(0.2, "Share of the shapes that are held out.", group=SPLIT)
    control: bool | Sequence[str] = option(
        True,
        "Models trained beside the model on the same split for as many epochs, and compared with "
        "it shape by shape: perceptron (without edges; the default), random (the same model on "
        "graphs drawn with the same in-degrees) and forest.",
        group=SPLIT,
        metavar="WORD,..",
    )
    up: str | None = option(
        None,
        "Axis that points up: x, y, z or none. Clouds whose points have classes, and 4,096 points "
        "or more in the mean or a classification as LAS has it, and no lines between points, are "
        "scenes with z up by default: "
        "heights above the local ground are read, a scene keeps its own scale, and it is turned "
        "about that axis alone.",
        group=SCENES,
    )
    grid: float | None = option(
        None,
        "Side of the cells that scenes are thinned to, a point for each, in the units of the "
        "files; 0 for none. By default some three times the distance of neighbouring points. All "
        "points are predicted as their cells.",
        group=SCENES,
    )
    block: float | None = option(
        None,
        "Side of the overlapping blocks that scenes are cut into, in the units of the files; by "
        "default those of some 8,192 points where a thinned scan has more than 32,768, or none "
        "with shard. Answers are averaged where blocks overlap.",
        group=SCENES,
    )
    fields: Sequence[str] | None = option(
        None,
        "Fields that are predicted; by default all of the files.",
        group=SIMULATION,
        metavar="NAME,..",
    )
    forcing: Sequence[str] = option(
        (),
        "Fields of the files that are known ahead: they are read at a step and the next, beside "
        "what the files have as forcing.",
        group=SIMULATION,
        metavar="NAME,..",
    )
    history: int = option(1, "Steps that are read.", group=SIMULATION, least=1)
    predict: str = option(
        "difference",
        "What is predicted: the difference of the next step from the last, the state, or the "
        "acceleration, the difference of differences, for which history is 2 or more.",
        group=SIMULATION,
    )
    noise: str | float = option(
        "auto",
        "Noise on what is read in training, in deviations of a step's difference; auto is 0.3, of "
        "accelerations 0.03. The truth stays, so that steps are learned that correct it.",
        group=SIMULATION,
        metavar="X",
    )
    unroll: int = option(
        1, "Steps of a window in training, of which each reads the last.", group=SIMULATION, least=1
    )
    pushforward: bool = option(
        False, "No gradients from a step of a window to those before.", group=SIMULATION
    )
    steps: int = option(
        0,
        "Steps of the rollouts that it is judged by; 0 for all that a file has.",
        group=SIMULATION,
        least=0,
    )
    weight: str = option(
        "none",
        "Weights of nodes in the loss: none, area (of their cells) or latitude (on a sphere).",
        group=SIMULATION,
    )
    start: PathLike | None = option(
        None,
        "Run of the same model, or a state dict (.safetensors, .pt), to start from: tensors of the "
        "same name and shape are taken, others are new.",
        group=RUN,
        metavar="RUN",
        flag="--from",
    )

    def read_folder(self, folder: PathLike) -> Any:
        """The shapes of a folder, with labels as these options name them, or its trajectories."""
        if self.task == "simulate":
            return TrajectoryFolder(folder, self.forcing)
        for item in fields(self):
            is_own = item.metadata["group"] == SIMULATION
            if is_own and getattr(self, item.name) != item.default:
                raise OptionError(f"{item.name} is for task='simulate'")
        shapes = ShapeFolder(
            folder, task=self.task, classes=self.names, label=self.label, ignore=self.ignore
        )
        if self.names is not None and shapes.task != "segment":
            raise OptionError(f"names are for classes of points, got a folder to {shapes.task}")
        return shapes
