"""Run one scene: the layer on the graph, the proof, the pictures."""

import io
import time
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image  # comes with matplotlib
from scene import Scene, Script
from torch import Tensor

import graphattn as ga
from graphattn.exactness import Report

WIDTH, HEADS = 32, 4
# inches, without and with a close-up
_TALL = ((4.2, 7.4), (4.2, 9.4))
_SMALL = (2.4, 1.9)


@dataclass(frozen=True)
class Outcome:
    """What one scene gave; errors are relative, by dtype."""

    script: Script
    scene: Scene
    report: Report
    backend: str
    time_ms: float
    pictures: "Pictures"

    @property
    def ok(self) -> bool:
        """Whether the claim holds and everything measured is exact."""
        return self.scene.claim and self.report.ok

    @property
    def verdict(self) -> str:
        """The report's own words, or that the title's claim fails."""
        return (
            str(self.report).splitlines()[-1].partition(":")[0].lower()
            if self.scene.claim
            else "CLAIM FAILS"
        )

    @property
    def nodes(self) -> str:
        """``64`` or ``2,150 → 340``."""
        graph = self.scene.graph
        return (
            f"{graph.num_nodes:,}"
            if graph.is_square
            else f"{graph.num_sources:,} → {graph.num_targets:,}"
        )

    def worst(self, gradient: bool, dtype: str) -> float:
        """The largest error of the output, or of any first or second derivative, over backends."""
        rows = [row for row in self.report.rows if row.dtype == dtype]
        return max(
            (
                row.error
                for row in rows
                if (row.quantity.startswith(("grad", "second")) if gradient else row.is_output)
            ),
            default=float("nan"),
        )


def run(script: Script, seed: int = 0) -> Outcome:
    """Build the graph by the lines that the page shows, run and verify the layer, draw."""
    torch.manual_seed(seed)
    shown: dict[str, Any] = {}
    exec(compile(script.code, script.name, "exec"), shown)
    made: Scene = shown["scene"]
    layer = ga.nn.GraphAttention(embed_dim=WIDTH, num_heads=HEADS).eval()
    x, context = embed(made.features, made.context)
    with torch.no_grad():
        time_ms = milliseconds(lambda: layer(x, made.graph, context=context))
        _, weights = layer(x, made.graph, context=context, return_weights=True)
    chosen = ga.explain(made.graph, heads=HEADS, head_dim=WIDTH // HEADS).chosen
    report = ga.verify(layer, made.graph)
    return Outcome(script, made, report, str(chosen), time_ms, pictures(made, weights))


def embed(features: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Features (T, F) and context (S, F) as waves of random direction and phase, at the layer's
    width.

    Rahimi & Recht (2007), "Random features for large-scale kernel machines": near features give
    near vectors.
    """
    every = features if context is None else torch.cat((features, context))
    direction, phase = 3 * torch.randn(every.shape[1], WIDTH), 6.28 * torch.rand(WIDTH)
    scaled = (every - every.mean(0)) / every.std(0).clamp(min=1e-6)
    made = 2 * torch.cos(scaled @ direction + phase)
    return made[: len(features)], None if context is None else made[len(features) :]


def milliseconds(call) -> float:
    """Median of five calls, after one that warms up."""
    call()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[2]


@dataclass(frozen=True)
class Pictures:
    """A scene as WebP, and its caption."""

    wide: bytes  # the mask beside the graph
    tall: bytes  # the same, for a narrow screen
    weights: bytes  # of one target
    small: bytes  # the weights without any word

    caption: str


def pictures(made: Scene, weights: ga.EdgeWeights) -> Pictures:
    """The graph, and the weights of one target."""
    graph, look = made.graph, dict(made.look)
    if made.first is not None:
        keep = (graph.target < made.first) & (graph.source < made.first)
        graph = graph.subgraph(range(made.first))
        weights = ga.EdgeWeights(graph, weights.alpha[keep])
        look["tokens"] = look["tokens"][: made.first]
    shown = {"highlight": made.highlight, **look}
    caption = ga.plot(graph, **shown).get_supxlabel()
    wide = ga.plot(graph, caption=False, title=False, **shown)
    tall = Figure(figsize=_TALL[len(wide.axes) > 3], layout="constrained", facecolor="white")
    ga.plot(graph, caption=False, title=False, figure=tall, **shown)
    read = {"values": weights, "target": made.target, "heads": "mean", "relative": True, **look}
    one = ga.plot(graph, **read)
    bare = {"caption": False, "title": False, "legend": False}
    small = Figure(figsize=_SMALL, layout="constrained", facecolor="white")
    ga.plot(graph, figure=small, **bare, **read | {"tokens": None})
    for axes in small.axes:
        axes.set(title="", xlabel="", ylabel="", xticks=[], yticks=[])
    images = [
        webp(figure, dpi) for figure, dpi in ((wide, 130), (tall, 130), (one, 110), (small, 100))
    ]
    return Pictures(*images, caption=" ".join(caption.split()))


def webp(figure: Figure, dpi: int) -> bytes:
    """A figure as the smaller of two files: with few colours exact, else nearly so."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi, bbox_inches="tight", pad_inches=0.04)
    image = Image.open(raw).convert("RGB")
    files = []
    for options in ({"lossless": True}, {"quality": 78}):
        file = io.BytesIO()
        image.save(file, "webp", method=6, **options)
        files.append(file.getvalue())
    return min(files, key=len)
