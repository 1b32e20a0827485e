"""Attention beside others on a table of shapes, a process for each peer; pairs of calls; the choice
of a backend.

    python examples/benchmarks/figures.py knn16,mesh,swin            # every peer
    python examples/benchmarks/figures.py knn16 --peers "PyG,PyG compiled,gather by hand"
    python examples/benchmarks/figures.py knn16 --sizes 1024,4096,16384 --out knn.png
    python examples/benchmarks/figures.py goals --json goals.json    # all that this library holds
    itself to

A peer's output and gradients are compared with ours first; one that differs is not timed. On the
CPU all others run on torch's number of threads and on one. Measure on a quiet machine.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from pairs import PAIRS, times_of
from peers import PEERS
from processes import Remote, hold_to_avx2
from shapes import SHAPES, Shape
from whole_models import MODELS

from graphattn.bench.machine import heading, machine
from graphattn.bench.peers import BOTH, FORWARD, MODES, AttentionCall
from graphattn.bench.timing import Contender, PeerComparison, measure, timed
from graphattn.io.writing import save_page, save_picture

STREAM_NUMBERS = 1 << 25  # float32; three arrays of 128 MiB, beyond any cache
EDGES = ("knn16", "knn64", "mesh", "power_law")
#: Times ours that others take at least, forward and with backward.
AT_LEAST: dict[str, tuple[float | None, float | None]] = {
    "knn16: PyG compiled": (5, 5),
    "knn64: PyG compiled": (6, 5),
    "knn16: gather by hand": (4, 4),
    "knn64: gather by hand": (4, 4),
    "mesh: PyG compiled": (4, 4.5),
    "mesh_relabelled: PyG compiled": (6, 6),
    "power_law: PyG compiled": (3.5, 3.5),
    "the four: PyG": (30, 30),
    "the four: PyG compiled, both on one thread": (None, 3),
    "window: SDPA": (45, 30),
    "longformer: SDPA": (30, 25),
    "swin: Swin by hand": (1.9, 1.9),
    "full: SDPA": (1.15, 1.1),
    "causal: SDPA": (1.4, 1.35),
    "PyG points": (5, None),
}
#: What is taken at most.
AT_MOST: dict[str, tuple[float | None, float | None]] = {
    "knn16: multiple of the floor": (None, 3),
    "mesh: multiple of the floor": (None, 2.6),
    "knn16_million: backward over forward": (None, 3),
    "knn16_million: kNN, plan and step, s": (None, 8),
    "knn16_million: peak of a step, GB": (None, 4),
    "layer of 1": (2.5, None),
    "layer of 16": (1.8, None),
    "layer of 64": (1.2, None),
    "token": (1.0, None),
    "sigmoid": (1.5, None),
    "subtraction": (2.0, None),
    "bfloat16": (0.9, None),
    "chunks": (1.1, None),
    "examples": (1.1, None),
    **dict.fromkeys(("masks of density 0.25", "masks of density 0.1"), (1.0, None)),
    **dict.fromkeys(
        ("kNN of 370", "kNN of 16,384", "kNN of 100,000", "kNN of clouds", "PLY"), (1.5, None)
    ),
    "radius": (2.0, None),
    "1-ring": (1.2, None),
    "choice of 60, the worst over the best": (1.15, None),
}
GROUPS = {"pairs": PAIRS, "models": MODELS}
Values = dict[str, dict[str, float]]  # of each figure, by mode


def floor_bytes(problem: AttentionCall, mode: str) -> int:
    """Bytes that every way must move: forward reads q, k, v and writes the output; backward reads
    these four and the output's gradient, and writes three gradients. 4 N W b and 12 N W b where
    sources are targets."""
    nodes = problem.graph.num_targets + problem.graph.num_sources
    row = problem.batch * problem.heads * problem.head_dim * problem.dtype.itemsize
    return (2 if mode == FORWARD else 6) * nodes * row


def stream_gb_per_s(device: str) -> float:
    """Bandwidth of ``a = b + 2 c`` on arrays beyond any cache, 12 bytes a number, the best of
    several (STREAM).
    """
    a, b, c = (torch.ones(STREAM_NUMBERS, device=device) for _ in range(3))
    best = min(timed(lambda: torch.add(b, c, alpha=2.0, out=a), 1, device) for _ in range(15))
    return 12 * STREAM_NUMBERS / best / 1e9


def compared(
    shape: Shape, problem: AttentionCall, names: list[str], options: argparse.Namespace
) -> tuple[PeerComparison, Any]:
    """Every peer in a process of its own; ours on torch's number of threads, "auto" and the others
    on one, too.
    """
    number, contenders = torch.get_num_threads(), []
    for threads in sorted({number, 1 if problem.device == "cpu" else number}, reverse=True):
        for name in names:
            peer = PEERS[name]
            if (threads == number or not peer.ours or name == "auto") and (
                peer.ours or not shape.only_ours
            ):
                kind = Contender if peer.reasons_against(problem) else Remote
                contenders.append(kind(peer, problem, threads))
    remote = [contender for contender in contenders if isinstance(contender, Remote)]
    try:
        rows = measure(
            contenders, options.repeats, options.limit, lambda what: print(what, file=sys.stderr)
        )
    finally:
        for contender in remote:
            contender.end()
    return PeerComparison(problem, rows), {
        f"{c.peer.name}, {c.threads}": c.peak_bytes for c in remote
    }


def figures_of(
    name: str, result: PeerComparison, floor_ms: dict[str, float], made_s: float, peaks: Any
) -> Values:
    """What a comparison says, in ratios."""
    auto, values = result.rows[0], {}
    single = {row.name: row for row in result.rows if row.threads == 1}
    for peer in {row.name for row in result.rows if not row.ours}:
        ratios = {mode: result.ratio(result.fastest(mode, peer), mode) for mode in MODES}
        values[f"{name}: {peer}"] = {mode: ratio for mode, ratio in ratios.items() if ratio}
    for mode in auto.ms:
        ms, peak = auto.median(mode) or 0.0, peaks.get(f"auto, {auto.threads}", {}).get(mode)
        values.setdefault(f"{name}: multiple of the floor", {})[mode] = ms / floor_ms[mode]
        values.setdefault(f"{name}: kNN, plan and step, s", {})[mode] = (
            made_s + auto.first_ms[mode] / 1e3
        )
        if peak is not None:
            values.setdefault(f"{name}: peak of a step, GB", {})[mode] = peak / 1e9
        own, other = (row and row.median(mode) for row in map(single.get, ("auto", "PyG compiled")))
        if own and other:
            values.setdefault(f"{name}: PyG compiled, both on one thread", {})[mode] = other / own
    if (forward := auto.median(FORWARD)) and (both := auto.median(BOTH)):
        values[f"{name}: backward over forward"] = {BOTH: both / forward - 1}
    return values


def judged(values: Values) -> Iterator[tuple[str, float, str, bool]]:
    """Every goal of which something was measured: its name, the value, the goal, and whether it is
    met.
    """
    for figure in ("PyG", "PyG compiled, both on one thread"):
        for mode in MODES:
            found = [values.get(f"{shape}: {figure}", {}).get(mode) for shape in EDGES]
            if all(found):
                values.setdefault(f"the four: {figure}", {})[mode] = min(filter(None, found))
    for table, sign in ((AT_LEAST, ">="), (AT_MOST, "<=")):
        for name, goals in table.items():
            for mode, goal in zip(MODES, goals, strict=True):
                value = values.get(name, {}).get(mode)
                if goal is not None and value is not None:
                    met = value <= goal if sign == "<=" else value >= goal
                    yield (
                        (f"{name}, {mode}" if None not in goals else name),
                        value,
                        f"{sign} {goal:g}",
                        met,
                    )


def draw(results: dict[str, list[PeerComparison]]) -> Any:
    """Time against edges: a row of axes for each shape, the fastest number of threads of each
    peer.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6 * len(results)), layout="constrained")
    axes = figure.subplots(len(results), 2, squeeze=False, sharey="row")
    for row, (name, comparisons) in zip(axes, results.items(), strict=True):
        for ax, mode in zip(row, MODES, strict=True):
            for peer in ("auto", *{r.name: 0 for c in comparisons for r in c.rows if not r.ours}):
                best = [
                    (c.problem.graph.num_edges * c.problem.batch, c.fastest(mode, peer))
                    for c in comparisons
                ]
                line = sorted(
                    (edges, found.median(mode)) for edges, found in best if found is not None
                )
                if line:
                    ax.plot(
                        *zip(*line, strict=True),
                        marker="o",
                        label="graphattn" if peer == "auto" else peer,
                    )
            ax.set(xscale="log", yscale="log", xlabel="edges", ylabel="ms", title=f"{name}, {mode}")
            ax.legend()
    return figure


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = f"shapes, {', '.join(GROUPS)}, choice, goals"
    what = f"shapes: {', '.join(SHAPES)}; or {groups}; separated by commas"
    found.add_argument("names", help=what)
    found.add_argument(
        "--sizes", default="", metavar="N,N,..", help="about how many nodes, for each shape in turn"
    )
    found.add_argument(
        "--peers", default="", metavar="NAME,..", help=f"beside auto: {', '.join(PEERS)}"
    )
    found.add_argument("--device", default="cpu", help="cpu or cuda")
    found.add_argument(
        "--avx2", action="store_true", help="peers and ours do without AVX-512 on a CPU that has it"
    )
    found.add_argument("--repeats", type=int, default=7, metavar="N", help="turns of each")
    found.add_argument(
        "--limit",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="for the turns of each, by mode",
    )
    found.add_argument("--json", metavar="FILE", help="all numbers, written again after each graph")
    found.add_argument("--out", metavar="FILE", help="a picture of time against edges")
    return found


def main() -> int:
    """0 if every goal that was measured is met."""
    options = parser().parse_args()
    names, peers = options.names.split(","), [name for name in options.peers.split(",") if name]
    goals = "goals" in names
    if goals:
        names = [name for name, shape in SHAPES.items() if shape.rivals or shape.only_ours] + [
            "pairs",
            "choice",
        ]
    names = [one for name in names for one in (SHAPES if name == "shapes" else [name])]
    for name in (*names, *peers):
        if name not in (*SHAPES, *GROUPS, "choice", *PEERS):
            parser().error(
                f"{name} is no shape and no peer; names are {', '.join(SHAPES)}, peers "
                f"{', '.join(PEERS)}"
            )
    if options.avx2:
        hold_to_avx2()
    facts = machine(options.device)
    facts["stream_gb_per_s"] = stream_gb_per_s(options.device)
    print(
        heading(facts),
        f"memory streams at {facts['stream_gb_per_s']:.3g} GB/s",
        sep="\n",
        flush=True,
    )
    values: Values = {}
    results: dict[str, list[PeerComparison]] = {}
    kept: list[dict[str, Any]] = []

    def keep(line: Any, **numbers: Any) -> None:
        print(f"\n{line}", flush=True)
        kept.append(numbers)
        if options.json:
            content = {
                "machine": facts,
                "command": sys.argv[1:],
                "figures": values,
                "results": kept,
            }
            save_page(options.json, json.dumps(content, indent=1) + "\n")

    for name in names:
        if name in GROUPS:
            for pair, (about, make) in GROUPS[name].items():
                times = times_of(make(), max(21, options.repeats))
                values[pair] = {FORWARD: times.ratio}
                keep(f"{pair}: {times.ratio:.3g} ({about})", pair=pair, **times._asdict())
        elif name == "choice":
            import choice  # which builds its graphs

            worst = 0.0
            for graph, width in itertools.product(choice.GRAPHS, choice.WIDTHS):
                over_best = max(choice.ratios(graph, width))
                worst = max(worst, over_best)
                values["choice of 60, the worst over the best"] = {FORWARD: worst}
                line = f"{graph}, {width}: {over_best:.2f} of the quickest"
                keep(line, choice=line)
        else:
            shape = SHAPES[name]
            own = peers or (shape.rivals if goals else PEERS)
            for size in map(int, options.sizes.split(",") if options.sizes else [shape.num_nodes]):
                start = time.perf_counter()
                problem = AttentionCall(
                    shape.make(size),
                    shape.heads,
                    shape.head_dim,
                    shape.batch,
                    device=options.device,
                )
                made_s = time.perf_counter() - start
                problem = replace(problem, graph=problem.graph.to(torch.device(options.device)))
                result, peaks = compared(
                    shape, problem, ["auto", *(peer for peer in own if peer != "auto")], options
                )
                floor_ms = {
                    m: floor_bytes(problem, m) / facts["stream_gb_per_s"] / 1e6 for m in MODES
                }
                values |= figures_of(name, result, floor_ms, made_s, peaks)
                results.setdefault(name, []).append(result)
                floor = ", ".join(f"{ms:.3g} ms {mode}" for mode, ms in floor_ms.items())
                lines = [f"{name}: {result}", f"  compulsory memory traffic: {floor}"]
                lines += [
                    f"  peak memory of the first calls: {who}: {_megabytes(peak)}"
                    for who, peak in peaks.items()
                ]
                keep(
                    "\n".join(lines),
                    name=name,
                    floor_ms=floor_ms,
                    made_s=made_s,
                    peaks=peaks,
                    **result.to_dict(),
                )
    goals_met = list(judged(values))
    if goals_met:
        width = max(len(name) for name, *_ in goals_met)
        rows = [
            f"{n:{width}}  {v:8.3g}  {goal:>8}{'' if met else '  missed'}"
            for n, v, goal, met in goals_met
        ]
        keep("\n".join([f"{'figure':{width}}  measured      goal", *rows]), goals=goals_met)
    if options.out:
        save_picture(options.out, draw(results), dpi=200)
    return int(not all(met for *_, met in goals_met))


def _megabytes(peak: dict[str, int]) -> str:
    return ", ".join(f"{count / 1e6:,.4g} MB {mode}" for mode, count in peak.items())


if __name__ == "__main__":
    sys.exit(main())
