"""Rollouts as films that play on a page: the truth, the prediction and their difference."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ...graph.pictures.html import image
from ...graphs.points.sphere import degrees
from ...viz.style import FAINT, empty_figure, png, shades
from .notes import with_unit

_FRAMES = 16
_MOST = 1 << 15  # nodes of a film
_AREA = 6000  # of all points of a panel, in square points of 1/72 inch
_MILLISECONDS = 250


def of_trajectory(result: Any, number: int) -> tuple[str, str, str]:
    """A film of the first channel, or of particles where they are, as HTML, with a caption."""
    truth = result.labels[number]
    prediction = result.answers[number]
    scores = result.task.scores(prediction, truth)
    names = result.task.classes
    trajectory = result.data.folder[result.data.numbers[number]]
    steps = np.unique(np.linspace(0, scores["steps"] - 1, _FRAMES).astype(int))
    channels = [0]
    if trajectory.pos.dim() == 3 and "pos" in trajectory.fields:
        channels = [i for i, name in enumerate(names) if name.partition(".")[0] == "pos"][:2]
    frames = []
    for step in steps:
        pair = (truth[:, 2 + step, channels], prediction[:, step, channels])
        frames.append((f"step {step + 1}", [x.numpy() for x in pair]))
    words = result.task.in_words(scores)
    if len(channels) == 2:
        return image(_film(_particles(frames))), f"pos: {words}", ""
    caption = f"{names[0]}: {words}"
    frames = [(title, [x[:, 0] for x in pair]) for title, pair in frames]
    limits = _limits(frames)
    low, high = limits
    scale = with_unit(f"{low:.3g} to {high:.3g}", trajectory.units, names[0].partition(".")[0])
    caption += f"; colours from {scale}, of the difference {(high - low) / 4:.3g} to each side"
    film = _fields(places(trajectory), _triangles(trajectory), frames, limits)
    return image(_film(film)), caption, ""


def places(trajectory: Any) -> np.ndarray:
    """Where the nodes are drawn (N, 2): longitudes and latitudes of a sphere."""
    pos = trajectory.positions(0)
    on_map = degrees(pos)
    if on_map is not None:
        pos = torch.stack(on_map[::-1], 1)
    axes = max(0, 2 - pos.shape[1])
    return np.pad(pos[:, :2].numpy(), ((0, 0), (0, axes)))


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


def _limits(frames: list[Any]) -> tuple[float, float]:
    """The range of a channel over a film, without what is rarer than one in a thousand."""
    values = np.concatenate([x for _, pair in frames for x in pair])
    low, high = np.quantile(values, (0.001, 0.999))
    return float(low), float(high)


def _fields(
    pos: np.ndarray,
    triangles: np.ndarray | None,
    frames: list[Any],
    limits: tuple[float, float],
) -> Iterator[Any]:
    """Figures of a channel; all frames have the colours of one scale, between its limits."""
    part = np.linspace(0, len(pos) - 1, min(len(pos), _MOST)).astype(int)
    low, high = limits
    half = max(high - low, 1e-30) / 4
    for title, (truth, prediction) in frames:
        figure = empty_figure(None, 9.0, 3.2)
        axes = figure.subplots(1, 3)
        panels = (
            ("truth", truth, "viridis", limits),
            (f"prediction, {title}", prediction, "viridis", limits),
            (
                "difference",
                prediction - truth,
                shades("#2166ac", "#f7f7f7", "#b2182b"),
                (-half, half),
            ),
        )
        for ax, (words, x, colours, (least, most)) in zip(axes, panels, strict=True):
            options = {"cmap": colours, "vmin": least, "vmax": most}
            if triangles is not None:
                ax.tripcolor(*pos.T, triangles, x, shading="gouraud", **options)
            else:
                ax.scatter(
                    *pos[part].T, c=x[part], s=max(4, _AREA / len(part)), linewidths=0, **options
                )
            ax.set_title(words, fontsize=9, loc="left")
        yield figure


def _particles(frames: list[Any]) -> Iterator[Any]:
    """Figures of particles in the colours of their first heights, and of both over each other."""
    everywhere = np.concatenate([pos for _, pair in frames for pos in pair])
    part = np.unique(np.linspace(0, len(frames[0][1][0]) - 1, _MOST).astype(int))
    height = frames[0][1][0][part, 1]
    for title, pair in frames:
        figure = empty_figure(None, 9.0, 3.2)
        axes = figure.subplots(1, 3)
        truth, prediction = (pos[part].T for pos in pair)
        axes[0].scatter(*truth, c=height, s=9, linewidths=0)
        axes[1].scatter(*prediction, c=height, s=9, linewidths=0)
        axes[2].scatter(*truth, color=FAINT, s=9, linewidths=0)
        axes[2].scatter(*prediction, color="#b2182b", s=3, linewidths=0)
        words = ("truth", f"prediction, {title}", "the prediction over the truth")
        for ax, title_of in zip(axes, words, strict=True):
            ax.set_title(title_of, fontsize=9, loc="left")
            ax.set_xlim(everywhere[:, 0].min(), everywhere[:, 0].max())
            ax.set_ylim(everywhere[:, 1].min(), everywhere[:, 1].max())
        yield figure


def _film(figures: Iterator[Any]) -> bytes:
    """An animated PNG."""
    from PIL import Image

    pictures = []
    for figure in figures:
        for ax in figure.axes:
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
