"""Run the scenes one after the other, tell how they went, write the page."""

import argparse
import platform
import sys
import time
import traceback
import warnings
from pathlib import Path

import scenes  # noqa: F401  (importing it registers the scenes)
import torch
from page import render, short, tiny
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from run import Outcome, run
from scene import SCRIPTS, Script

_WIDE = 130  # columns that a line per scene takes


def main() -> int:
    """Run the scenes, print the table, write the page; 0 if every claim and every report holds."""
    parser = argparse.ArgumentParser(
        prog="python examples/demo",
        description="Real inputs through graphattn, each verified exact.",
    )
    parser.add_argument(
        "--page", type=Path, default=Path("demo_page/index.html"), help="where the page is written"
    )
    parser.add_argument("--only", metavar="WORD", help="scenes whose name holds this word")
    arguments = parser.parse_args()
    chosen = [
        script for script in SCRIPTS if arguments.only is None or arguments.only in script.name
    ]
    if not chosen:
        parser.error(
            f"no scene is called {arguments.only!r}; there are: "
            f"{', '.join(s.name for s in SCRIPTS)}"
        )
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)

    start = time.perf_counter()
    outcomes, broken = played(chosen, console)
    console.print(table(outcomes, console.width))
    good = not broken and all(outcome.ok for outcome in outcomes)
    for outcome in outcomes:
        if not outcome.ok:
            console.print(
                f"\n{outcome.script.name}: claim "
                f"{'holds' if outcome.scene.claim else 'DOES NOT HOLD'}"
            )
            console.print(str(outcome.report), markup=False, highlight=False)
    seconds = time.perf_counter() - start
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    versions = (
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    arguments.page.write_text(render(outcomes, broken, seconds, versions), encoding="utf-8")
    told = "everything compared is exact" if good else "NOT everything is exact"
    console.print(
        f"{len(outcomes)} of {len(chosen)} scenes in {seconds:.0f} s: {told}", highlight=False
    )
    print(arguments.page.resolve())
    return 0 if good else 1


def played(chosen: list[Script], console: Console) -> tuple[list[Outcome], dict[str, str]]:
    """The outcomes, and what broke, by scene; shows a bar on a terminal and a line each
    elsewhere.
    """
    outcomes, broken = [], {}
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=len(chosen))
        for number, script in enumerate(chosen, 1):
            progress.update(task, description=script.name)
            start = time.perf_counter()
            try:
                outcomes.append(run(script))
                verdict = outcomes[-1].verdict
            except Exception as error:
                verdict, broken[script.name] = "BROKE", f"{type(error).__name__}: {error}"
                console.print(traceback.format_exc(), markup=False, highlight=False)
            if not console.is_terminal:
                seconds = time.perf_counter() - start
                print(
                    f"[{number}/{len(chosen)}] {script.name}: {verdict}, {seconds:.1f} s",
                    flush=True,
                )
            progress.advance(task)
    return outcomes, broken


def table(outcomes: list[Outcome], width: int) -> Table:
    """One line per scene, or two on a narrow terminal."""
    narrow = width < _WIDE
    made = Table(
        caption=(
            "worst errors against the dense twin, relative: float64, then float32; ms of one "
            "forward pass"
        ),
        box=None if narrow else box.HEAVY_HEAD,
        padding=(0, 1, 1, 0) if narrow else (0, 1),
    )
    between = "\n" if narrow else " / "
    heads = (
        "scene",
        "nodes",
        f"edges{between}density",
        "backend",
        "ms",
        "output\nerror",
        "gradient\nerror",
        "verdict",
    )
    for head in heads:
        made.add_column(
            head, justify="left" if head in ("scene", "backend", "verdict") else "right"
        )
    for outcome in outcomes:
        graph, told = outcome.scene.graph, f"[{'green' if outcome.ok else 'red'}]{outcome.verdict}"
        output, gradient = (
            between.join(tiny(outcome.worst(part, dtype)) for dtype in ("float64", "float32"))
            for part in (False, True)
        )
        edges = f"{graph.num_edges:,}{between}{graph.density:.2g}"
        made.add_row(
            outcome.script.name,
            outcome.nodes,
            edges,
            outcome.backend,
            short(outcome.time_ms),
            output,
            gradient,
            told,
        )
    return made
