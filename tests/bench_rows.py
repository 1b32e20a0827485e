"""Rows and cases as if measured, for tests of tables and pictures."""

from graphattn.bench.problem import BOTH, FORWARD
from graphattn.bench.result import Case, Row

MACHINE = {
    "date": "2026-01-02T03:04:05+00:00",
    "device": "cpu",
    "processor": "a processor",
    "cores": 2,
    "threads": 2,
    "load_before": 0.1,
    "stream_gb_per_s": 20.0,
    "versions": {"torch": "2.x", "triton": None},
    "command": ["graphattn", "bench"],
}


def row(name, forward=(), both=(), ours=False, **more):
    times = {FORWARD: list(forward), BOTH: list(both)}
    times = {mode: ms for mode, ms in times.items() if ms}
    return Row(
        name,
        "about it",
        ours,
        times_ms=times,
        plan_ms=dict.fromkeys(times, 1.5),
        peak_bytes=dict.fromkeys(times, 3_000_000),
        difference=dict.fromkeys(times, 2e-7),
        **more,
    )


def case(name="knn16", edges=1000, factor=1.0):
    rows = [
        row("auto", [2.0 * factor, 1.9 * factor, 2.4 * factor], [6.0 * factor], ours=True),
        row("dense", [9.0 * factor], [30.0 * factor], ours=True),
        row("edges", [1.0 * factor], [5.0 * factor], ours=True),
        row("PyG", [40.0 * factor, 60.0 * factor, 50.0 * factor], [90.0 * factor], notes=["forward: 3 of 7 turns"]),
        row("FlexAttention", [8.0 * factor], notes=["no backward pass"]),
        row("SDPA", refused=["only for a full graph"]),
    ]
    sizes = {"heads": 4, "head_dim": 32, "batch": 1, "dtype": "float32"}
    floor = {FORWARD: 0.5 * factor, BOTH: 1.5 * factor}
    return Case(name, "AttentionGraph(...)", sizes, edges, floor, 2e-4, rows, "dense", {"dense": 3.0, "edges": 4.0})
