"""Options of a training: what callers and the command line may set, and what a run stores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..arguments import flag, number, positive, text, whole
from ..errors import OptionError
from ..io.reading import PathLike
from ..shapes import ShapeFolder

#: Least value of each setting whose default depends on the shapes.
_LEAST = {"epochs": 1, "points": 1, "patience": 0}


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Settings of the training loop whose defaults are the same for all shapes.

    Args:
        seed: Seed of all that is drawn: the split, parameters, orders, changes, dropout.
        lr: Largest learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        workers: Processes that make batches: shapes changed in training, their graphs, and the plans
            that a step needs of these (:mod:`graphattn.training.running.feeding`). Numbers do not depend on
            it. Each holds two batches or three in shared memory.
        seconds: Time between two checkpoints inside an epoch; there is one at its end, too.
        device: Device of the model: "cpu", "cuda".
        amp: True for steps in bfloat16 where torch's autocast has it; parameters, losses and
            validation stay in float32.
        shard: True to share the points of every batch among processes, in place of its shapes.
        average: Decay of an exponential average of the parameters, which is validated and kept; 0
            for none, 0.99 for some 100 steps.
    """

    seed: int = 0
    lr: float = 3e-3
    weight_decay: float = 0.02
    workers: int = 0
    seconds: float = 30.0
    device: str = "cpu"
    amp: bool = False
    shard: bool = False
    average: float = 0.0

    def __post_init__(self) -> None:
        whole(self.seed, "seed", 0)
        whole(self.workers, "workers", 0, below=1 << 10)
        positive(self.lr, "lr")
        for name in ("weight_decay", "seconds"):
            number(getattr(self, name), name, "a finite number >= 0", lambda x: 0 <= x < math.inf)
        number(self.average, "average", "a number in [0, 1)", lambda x: 0 <= x < 1)
        text(self.device, "device")
        flag(self.amp, "amp")
        flag(self.shard, "shard")


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
        for name, least in _LEAST.items():
            whole(getattr(self, name), name, least)

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


@dataclass(frozen=True, kw_only=True)
class Options(LoopSettings):
    """Options of :func:`train`, and of ``graphattn train``, with those of :class:`LoopSettings`.

    What is ``None`` depends on the shapes: a run stores the value that was chosen.

    Args:
        task: "classify", "segment" or "regress"; by default the task that the labels are for.
            "classify" also reads a folder for each class where points have labels, which are
            learned by default.
        label: Property of each point or face that is the label; by default ``label``, or else the
            ``classification`` of LAS.
        ignore: Values of the label that are no label: (0,) for points that were never classified.
        names: Names of the classes of points, in the order of their values without those ignored.
        model: Name of a model; "best" trains "unet" and grows a forest on the same features, and
            answers by the one with the better score on the validation part, or by the mean of
            both (:mod:`graphattn.training.models.best`). By default "unet", or "mesh-unet" to regress a
            number for each vertex of meshes: along its edges, and between some vertices of all of it.
        graph: Expression of a recipe, such as ``"radius(..., 0.2)"``, for all levels of the
            hierarchy, or one for each with ``;`` between them; by default the model's.
        features: Features of the points, words of :class:`Inputs`; by default the model's, and the
            files' colours.
        augment: Changes of a shape in training: "rotation", "mirror", "stretch", "drop", "jitter".
        model_options: Arguments of the model, such as ``{"widths": [64, 64]}``.
        epochs: Largest number of epochs; by default as many as make 2.5 million points, from 10 to
            60.
        points: Points of a batch; by default those of up to 16 shapes.
        patience: Epochs without a better one on the validation part, after which training stops; 0
            for none. By default half of the epochs, 8 at least.
        sample: Points drawn of each shape that has more, on its faces if it has some; 0 takes all.
            By default 512 for an answer for each shape, else all.
        up: Axis that points up, "x", "y" or "z", or "none". Clouds whose points have classes, and
            4,096 points or more in the mean or a ``classification`` as LAS has it, are scenes with
            "z" up by default: heights above the local ground are read, a scene keeps its own scale,
            and it is turned about that axis alone.
        grid: Side of the cells that scenes are thinned to, a point for each, in the units of the
            files; 0 for none. By default some three times the distance of neighbouring points. All
            points are predicted as their cells.
        block: Side of the overlapping blocks that scenes are cut into, in the units of the files;
            by default those of some 8,192 points where a thinned scan has more than 32,768, or none
            with ``shard``. Answers are averaged where blocks overlap.
        elements: Tokens of a mesh for the model "mesh": "vertices", "faces" or "edges"; by default
            those that have labels. Labels of faces are the property ``label`` of a .ply's faces;
            those of edges (in the order of :func:`graphattn.shapes.mesh_edge_ends`) and of faces
            also ``y`` of a .npz.
        val: Share of the shapes by which an epoch is chosen.
        test: Share of the shapes that are held out.
        control: Models trained beside the model on the same split for as many epochs, and compared
            with it shape by shape: "perceptron" (without edges), "random" (the same model on
            graphs drawn with the same in-degrees) and "forest"; ``True`` is the perceptron.
        balance: True to weight each class by 1 over the root of its share of the labels; by default
            where points have classes and one is five times as frequent as another.
        start: Run of the same model, or a state dict (.safetensors, .pt), to start from: tensors of
            the same name and shape are taken, others are new.
    """

    task: str | None = None
    label: str | None = None
    ignore: Sequence[int] = ()
    names: Sequence[str] | None = None
    model: str | None = None
    graph: str | None = None
    features: Sequence[str] | None = None
    augment: Sequence[str] | None = None
    model_options: Mapping[str, Any] | None = None
    epochs: int | None = None
    points: int | None = None
    patience: int | None = None
    sample: int | None = None
    up: str | None = None
    grid: float | None = None
    block: float | None = None
    elements: str | None = None
    val: float = 0.1
    test: float = 0.2
    control: bool | Sequence[str] = True
    balance: bool | None = None
    start: PathLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None:
                whole(value, name, least)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Options":
        """Options by name.

        Raises:
            OptionError: If there is no option of that name, or its value cannot be.
        """
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise OptionError(
                    f"train takes no such option: {name}; graphattn.training.Options lists them"
                )
        return cls(**values)

    def shapes(self, folder: PathLike) -> ShapeFolder:
        """The shapes of a folder, with labels as these options name them."""
        shapes = ShapeFolder(
            folder, task=self.task, classes=self.names, label=self.label, ignore=self.ignore
        )
        if self.names is not None and shapes.task != "segment":
            raise OptionError(f"names are for classes of points, got a folder to {shapes.task}")
        return shapes
