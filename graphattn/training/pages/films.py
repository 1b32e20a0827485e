"""Rollouts as films that play on a page: the truth, the prediction and their difference."""

import io
from typing import Any

import numpy as np
import torch

from ...graph.pictures.html import image
from ...viz.style import empty_figure, png, shades

_FRAMES = 16
_MOST = 1 << 15  # nodes of a film
_MILLISECONDS = 250


def of_trajectory(result: Any, number: int) -> tuple[str, str, str]:
    """A film of the first channel, as HTML, with a caption."""
    truth = result.labels[number]
    prediction = result.answers[number]
    scores = result.task.scores(prediction, truth)
    name = result.task.classes[0]
    caption = f"{name}, {scores['steps']} steps: {result.task.in_words(scores)}"
    trajectory = result.data.folder[result.data.numbers[number]]
    steps = np.unique(np.linspace(0, scores["steps"] - 1, _FRAMES).astype(int))
    frames = []
    for step in steps:
        pair = (truth[:, 2 + step, 0], prediction[:, step, 0])
        frames.append((f"step {step + 1}", [x.numpy() for x in pair]))
    pos = trajectory.positions(0)[:, :2].numpy()
    if pos.shape[1] == 1:
        pos = np.pad(pos, ((0, 0), (0, 1)))
    return image(_film(pos, _triangles(trajectory), frames)), caption, ""


def _triangles(trajectory: Any) -> np.ndarray | None:
    """Triangles of a mesh in the plane; None of other shapes, which are drawn as points."""
    if trajectory.pos.shape[-1] != 2:
        return None
    faces = [torch.zeros(0, 3, dtype=torch.int64)]
    for kind, rows in trajectory.cells:
        if kind.startswith("triangle"):
            faces.append(rows[:, :3])
        elif kind.startswith("quad"):
            faces += [rows[:, :3], rows[:, [0, 2, 3]]]
    triangles = torch.cat(faces).numpy()
    if len(triangles):
        return triangles
    return None


def _film(pos: np.ndarray, triangles: np.ndarray | None, frames: list[Any]) -> bytes:
    """An animated PNG; all frames have the colours of one scale."""
    from PIL import Image

    part = np.linspace(0, len(pos) - 1, min(len(pos), _MOST)).astype(int)
    values = np.concatenate([x for _, pair in frames for x in pair])
    low, high = np.quantile(values, (0.001, 0.999))
    half = max(high - low, 1e-30) / 4
    pictures = []
    for title, (truth, prediction) in frames:
        figure = empty_figure(None, 9.0, 3.2)
        axes = figure.subplots(1, 3)
        panels = (
            ("truth", truth, "viridis", (low, high)),
            (f"prediction, {title}", prediction, "viridis", (low, high)),
            (
                "difference",
                prediction - truth,
                shades("#2166ac", "#f7f7f7", "#b2182b"),
                (-half, half),
            ),
        )
        for ax, (words, x, colours, limits) in zip(axes, panels, strict=True):
            options = {"cmap": colours, "vmin": limits[0], "vmax": limits[1]}
            if triangles is not None:
                ax.tripcolor(*pos.T, triangles, x, shading="gouraud", **options)
            else:
                ax.scatter(*pos[part].T, c=x[part], s=4, linewidths=0, **options)
            ax.set_title(words, fontsize=9, loc="left")
            ax.set_aspect("equal")
            ax.set_axis_off()
        pictures.append(
            Image.open(io.BytesIO(png(figure, 80))).convert("P", palette=Image.Palette.ADAPTIVE)
        )
    stream = io.BytesIO()
    pictures[0].save(
        stream,
        "png",
        save_all=True,
        append_images=pictures[1:],
        duration=_MILLISECONDS,
        loop=0,
    )
    return stream.getvalue()
