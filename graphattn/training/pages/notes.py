"""Notes for the reader of a run: unread properties, classes never predicted, a short reach."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, bincount, cat

from ...shapes import ShapeFolder
from ...shapes.files.curves.lines import ORDERED
from ..evaluation import Evaluation
from ..models.named import CHOOSING
from ..reading.inputs import OF_ATOMS, rows_of
from ..reading.scenes import CELLS
from ..run import CONTROL_WORDS, Run

_FEW = 20  # labels of a class
_LOW = 0.5  # R2 below which a model of short reach may be the reason
_OWN = ("pos", "y", "face", "face_y")
_SIGNALS = {"normals": "normal"}  # signals that files call otherwise


def left_out(run: Run, shapes: ShapeFolder) -> list[str]:
    """Properties with a row for each token of a shape that the model does not read."""
    shape = shapes[0]
    inputs = run.inputs
    if inputs.simulation is not None:
        return [name for name in shape.fields if name not in inputs.features]
    names_read = {
        *_OWN,
        *ORDERED,
        *inputs.features,
        *(_SIGNALS.get(word, word) for word in inputs.signals),
    }
    if inputs.normals in ("normal", "faces"):
        names_read.add("normal")
    if {*OF_ATOMS} & {*inputs.features}:
        names_read.add("z")
    rows = rows_of(shape, len(shape.pos))
    if "face" in shape:
        rows |= rows_of(shape, shape.face.shape[1])
    return [name for name, _ in shape.items() if name in rows and name not in names_read]


def words_read(run: Run) -> list[str]:
    """Names of what the model reads, forcings of simulations among them."""
    inputs = run.inputs
    names = [*inputs.features, *inputs.signals]
    if inputs.simulation is not None:
        names += inputs.simulation.window.forcing
    return list(dict.fromkeys(names))


def with_unit(text: str, units: Mapping[str, str], name: str = "") -> str:
    """A text, such as the name of a field or of one of its channels, and its unit if it is known."""
    unit = units.get(name or text) or units.get(text.rpartition(".")[0])
    if unit:
        return f"{text} {unit}" if name else f"{text} ({unit})"
    return text


def reach_in_words(result: Evaluation) -> str:
    """What a simulator reads beside what moves in a step."""
    simulation = result.data.inputs.simulation
    if result.reach is None or simulation is None:
        return ""
    units = result.data.folder[result.data.numbers[0]].units
    step = with_unit(f"{simulation.window.dt:g}", units, "time")
    return result.reach.in_words(step, units.get("pos", ""))


def scene_of(run: Run) -> str:
    """The axis up, cells and blocks of scans, in words."""
    if run.inputs.upward:
        up = f"{run.inputs.upward} is up (--up), "
    else:
        up = ""
    if 0 < run.inputs.block < CELLS * run.inputs.grid:
        block = f", cut into blocks of {run.inputs.block:g}"
    else:
        block = ""
    return f"{up}thinned to cells of {run.inputs.grid:g} (--grid){block}"


def unseen_classes(run: Run, shapes: ShapeFolder) -> str:
    """A note on classes missing in the validation part, which cannot choose epochs; "" for none."""
    if not run.task.kept_by_metric:
        return ""
    names = run.task.unseen(_labels(run, shapes, "train"), _labels(run, shapes, "val"))
    if not names:
        return ""
    return (
        f"the validation part has no label of {_few(names)}: the epoch is chosen by its loss, not "
        "by its mean IoU"
    )


def reads(run: Run, shapes: ShapeFolder) -> str:
    """The inputs of a run in words, and the properties of the files that it does not read."""
    lines = list(shapes.notes)
    if shapes.left:
        lines.append(f"left out, as not all files have them: {', '.join(shapes.left[:12])}")
    lines.append(_inputs(run, shapes))
    absent: set[str] = set()
    if run.task.name == "segment":
        counts = _counts(run, _labels(run, shapes, "train"))
        # names of LAS stand for values that no file has
        present = {name for name, count in _counts(run, shapes.labels).items() if count}
        absent = set(counts) - present
        rare = [f"{name} ({n:,})" for name, n in counts.items() if n < _FEW and name in present]
        if rare:
            lines.append(f"classes of few labels to train on: {', '.join(rare[:12])}")
    if run.task.weights:
        # weights of classes, in ascending order; the eight largest of many
        weights = zip(run.task.weights, run.task.classes, strict=True)
        pairs = sorted((weight, name) for weight, name in weights if name not in absent)
        if len(pairs) > 8:
            pairs = pairs[-8:]
        largest = ", ".join(f"{name} {weight:.2g}" for weight, name in pairs)
        where = ""
        if run.model in CHOOSING:
            where = " in the loss of the network, not in the forest"
        lines.append(
            f"classes are weighted{where}, rare ones more (--no-balance for none): {largest}"
        )
    unseen = unseen_classes(run, shapes)
    if unseen:
        lines.append(f"note: {unseen}")
    return "\n".join(lines)


def _inputs(run: Run, shapes: ShapeFolder) -> str:
    """A line on what the model reads."""
    inputs = run.inputs
    option = "features"
    if inputs.simulation is not None:
        option = "fields"
    words = f"reads {', '.join(words_read(run))}"
    if inputs.grid:
        words += f"; scenes: {scene_of(run)}"
    names = [repr(name) for name in left_out(run, shapes)]
    if names:
        features = ",".join((*inputs.features, "NAME"))
        words += f"; not read: {_few(names)} (--{option} {features} reads one)"
    return words


def _few(names: list[str]) -> str:
    """At most twelve names with commas between them."""
    if len(names) > 12:
        return f"{', '.join(names[:12])}, ..."
    return ", ".join(names)


def _labels(run: Run, shapes: ShapeFolder, part: str) -> list[Tensor]:
    """Labels of the shapes of a part."""
    files = set(run.split[part])
    return [label for number, label in enumerate(shapes.labels) if shapes.name(number) in files]


def _counts(run: Run, labels: list[Tensor]) -> dict[str, int]:
    """Number of labels of each class."""
    classes = run.task.classes
    # -1 is no label
    count = bincount(cat(labels).clamp(min=-1) + 1, minlength=len(classes) + 1)[1:]
    return dict(zip(classes, count.tolist(), strict=True))


def notes(run: Run, result: Evaluation) -> list[str]:
    """Lines for the terminal and the page."""
    task = result.task
    scores = result.scores
    lines = [words for words in run.unlike_start() if "held out" in words]
    unfinished = run.note_of_unfinished()
    if unfinished:
        lines.insert(0, unfinished)
    iou: dict[str, Any] = scores.get("iou", {})
    for name, value in iou.items():
        count = scores["labels"][name]
        if value == 0 < count:
            share = count / scores["points"]
            lines.append(f"no point of {name!r} is found: IoU 0.000, {share:.2%} of the labels")
    for name in result.controls:
        words = run.unfinished_control(name)
        if words:
            lines.append(f"unfinished control: {words} of {CONTROL_WORDS[name]} are trained")
        over = result.over(name)
        if over.is_negative:
            margin = over.in_words.removesuffix(" less")
            words = f"{CONTROL_WORDS[name]} scores more than {run.model}, by {margin}"
            if name == "forest" and run.model not in CHOOSING:
                words += "; --model best answers by the better of a network and a forest"
            lines.append(words)
    if result.reach is not None and not result.reach.is_enough:
        lines.append(reach_in_words(result))
    regresses_points = (run.model, task.name, task.readout) == ("mesh", "regress", "node")
    if regresses_points and scores["r2"] < _LOW:
        layers = run.options.get("num_layers", 2)
        lines.append(
            f"the model reads {layers} rings of a mesh; where the numbers depend on what is "
            "farther, --model mesh-unet reads the whole shape"
        )
    return lines
