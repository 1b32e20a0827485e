"""One page of a run that needs no network: curves, errors, and coloured shapes."""

import html
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import torch

from ...errors import singular
from ...graph.pictures.html import image
from ...io.writing import save_page
from ...viz import png
from ..evaluation import Evaluation
from ..models.best import choice_in_words
from ..reading.elements import TOKEN
from ..run import CONTROL_WORDS, Run
from .charts import curves, summary
from .colours import of_classes
from .gallery import chosen, gallery, images, isolated
from .notes import left_out, reach_in_words, scene_of, with_unit, words_read


def save_report(
    path: Path,
    run: Run,
    history: list[dict[str, Any]],
    result: Evaluation,
    warned: Sequence[str] = (),
) -> None:
    """Write the page; without matplotlib it names the package to install in place of pictures."""
    try:
        import matplotlib  # noqa: F401 (an extra)

        bars = summary(result)
        pictures = {
            "curves": images(curves(history, run.task), 160),
            "summary": image(png(bars, 160), width=round(bars.get_figwidth() * 96)),
            "shapes": gallery(result, chosen(result)),
        }
    except ModuleNotFoundError:
        pictures = dict.fromkeys(
            ("curves", "summary", "shapes"), "<p>pip install 'graphattn[plot]' for pictures.</p>"
        )
    text = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    words = {name: singular(part) for name, part in _words(run, result, warned).items()}
    save_page(path, text.substitute(words | pictures))


def _words(run: Run, result: Evaluation, warned: Sequence[str]) -> dict[str, str]:
    task = run.task
    escape = html.escape
    metric = {"accuracy": "of shapes right", "miou": "mean IoU", "r2": "R<sup>2</sup>"}.get(
        task.metric, "skill over the rollout"
    )
    name = run.model
    comparison = ""
    if result.choice:
        name += f": {result.choice['name']}"
        words = escape(choice_in_words(result.choice))
        comparison = f"<p>Of the network, the forest and both, {words}.</p>"
    scores = f"<div><b>{_number(task.metric, result.scores)}</b>{metric}, {escape(name)}</div>"
    for name, one in result.controls.items():
        score = _number(task.metric, one.scores)
        scores += f'<div class="other"><b>{score}</b>{CONTROL_WORDS[name]}</div>'
    for name in result.controls:
        over = result.over(name)
        unit = f"{over.unit}; {escape(task.per_shape)}"
        comparison += f"<p>The model scores {over.than(CONTROL_WORDS[name])} ({unit}).</p>"
    titles = {
        "classify": "Which class is taken for which",
        "segment": "Classes",
        "regress": "Predicted against true",
        "simulate": "Error over lead time",
    }
    captions = {
        (True, True): ": the truth, the prediction, and where it is wrong",
        (True, False): ": the truth, the prediction, and what it is too large or too small by",
        (False, True): ", in the colour of the predicted class",
        (False, False): ", dark to bright by their predictions",
    }
    colours = (of_classes(torch.arange(len(task.classes))) * 255).round().int().tolist()
    if task.readout == "node":
        legend = ""
    else:
        legend = "".join(
            f'<span><i class="swatch" style="background:rgb{tuple(colour)}"></i>{escape(name)}</span>'
            for name, colour in zip(task.classes, colours, strict=True)
        )
    part = {"test": "held-out", "val": "validation", "train": "training", "all": ""}[result.part]
    verb = {"classify": "classified", "segment": "segmented", "regress": "measured"}
    number = len(result.names)
    if task.name == "simulate":
        things = "trajectory" if number == 1 else "trajectories"
    else:
        things = "shape" if number == 1 else "shapes"
    counted = f"{number:,} {part} {things} {verb.get(task.name, 'simulated')}"
    # other files of the kind of the run's
    new = f"graphattn predict {shlex.quote(str(run.path))} NEW/*{Path(result.names[0]).suffix}"
    written = (
        "each file again with a property more, <code>prediction</code>, and a table of them, "
        "<code>predictions.csv</code>"
    )
    reach = escape(reach_in_words(result))
    if result.reach is not None and not result.reach.is_enough:
        reach = ""  # it is a note
    remarks = [*result.notes, *(text for text in warned if text not in result.notes)]
    kind = "Shapes"
    ending = ""
    caption = captions[task.readout == "node", bool(task.classes)]
    if task.name == "simulate":
        file = run.folder / result.names[0]
        new = f"graphattn rollout {shlex.quote(str(run.path))} {shlex.quote(str(file))}"
        kind = "Rollouts"
        trajectory = result.data.folder[result.data.numbers[0]]
        ending = ".xdmf"
        if trajectory.pos.dim() == 3:
            ending = ".pvd"
        written = "the first steps of a file and those that follow, for ParaView"
        if trajectory.template is not None:
            ending = ".nc"
            written = "the first steps of a file and those that follow, in its own coordinates"
        caption = ": the truth, the prediction, and their difference"
    return {
        "title": escape(f"{isolated(run.folder.name)}: {counted}"),
        "subtitle": escape(run.said),
        "scores": scores,
        "beside": comparison
        + "".join(f'<p class="note">{escape(isolated(note))}</p>' for note in remarks),
        "wide": "1 1 100%" if task.readout == "node" else "0 1 13rem",
        "what": titles[task.name],
        "about": (f"Those with the largest error first{caption}."),
        "legend": legend,
        "reach": reach,
        "next": escape(f"{new} --out answers{ending}"),
        "written": written,
        "kind": kind,
        "facts": "".join(
            f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>"
            for k, v in _facts(run, result).items()
        ),
    }


def _facts(run: Run, result: Evaluation) -> dict[str, str]:
    schedule = run.schedule
    inputs = run.inputs
    graphs = " ; ".join(dict.fromkeys(inputs.graph)) or "none"
    if inputs.grid:
        graphs += f" ; {scene_of(run)}"
    levels = (
        f", levels that keep {' and '.join(f'{r:g}' for r in inputs.ratio)} of the points"
        * bool(inputs.ratio)
    )
    size = sum(p.numel() for p in run.new_model().parameters())
    options = "".join(f", {name} {value}" for name, value in run.options.items())
    words = words_read(run)
    token = TOKEN[inputs.elements]
    time = ""
    changes = ", ".join(run.augment) or "nothing"
    simulation = inputs.simulation
    if simulation is not None:
        window = simulation.window
        units = result.data.folder[result.data.numbers[0]].units
        words = [with_unit(name, units) for name in words]
        token = "node"
        options += f", predicts the {window.predict} from {window.history} steps"
        steps = max(truth.shape[1] - 2 for truth in result.labels)
        time = f"{with_unit(f'steps of {window.dt:g}', units, 'time')}, rollouts of {steps} steps"
        changes = f"noise of {simulation.noise:g} deviations of a step's difference"
    facts = {
        "model": f"{run.model}, {size:,} parameters{options}",
        "reads": f"{', '.join(words)} of each {token}",
        "not read": ", ".join(left_out(run, result.data.folder)) or "nothing else in the files",
        "graphs": graphs + levels,
        "time": time,
        "trained": (
            f"at most {schedule.epochs} epochs in batches of {schedule.points:,} points, "
            f"seed {schedule.seed}"
        ),
        "changed in training": changes,
        "folder": str(run.folder),
        "torch": torch.__version__,
    }
    return {name: text for name, text in facts.items() if text}


def _number(metric: str, scores: dict[str, Any]) -> str:
    if metric == "accuracy":
        return f"{scores[metric]:.1%}"
    return f"{scores[metric]:.3f}"
