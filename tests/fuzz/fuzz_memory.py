"""Calls and graphs without number: what they leave behind, in objects and in memory.

``python tests/fuzz/fuzz_memory.py --seconds 60`` makes at least 10^4 calls on 10^3 graphs.
"""

import argparse
import gc
import sys
import time
from pathlib import Path

import torch

import graphattn as ga

MOST_OBJECTS, MOST_BYTES = 500, 16 << 20  # however many calls


def resident() -> int:
    """Bytes of this process that are in memory, as Linux counts."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


class Growth:
    """What was left behind since the first rounds, which make plans, compile, and fill what is kept
    on purpose.
    """

    def __init__(self, seed: int = 0) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.layer = ga.nn.GraphAttention(8, 2)
        self.graph = ga.from_mask(torch.rand(31, 31, generator=self.draw) < 0.2)
        self.x = torch.randn(31, 8, generator=self.draw)
        self.q = torch.randn(31, 2, 4, generator=self.draw, requires_grad=True)
        self.graphs = 0
        for _ in range(60):
            self.rounds(1, 1)
        gc.collect()
        self.bytes, self.objects = resident(), len(gc.get_objects())

    def rounds(self, calls: int, graphs: int) -> None:
        """Calls of a layer and of attention on one graph, and calls on graphs that are new and
        dropped.
        """
        for _ in range(calls):
            self.layer(self.x, self.graph)
            self._both(self.graph, "edges")
        for _ in range(graphs):
            self.graphs += 1
            fresh = ga.graphs.random_neighbours(31, 5, seed=self.graphs)
            for backend in ("dense", "tiles", "edges"):
                self._both(fresh, backend)

    def _both(self, graph: ga.AttentionGraph, backend: str) -> None:
        out = ga.attention(self.q, self.q, self.q, graph, backend=backend)
        torch.autograd.grad(out.sum(), self.q)

    def since(self) -> tuple[int, int]:
        """Objects and bytes more than then."""
        gc.collect()
        return len(gc.get_objects()) - self.objects, resident() - self.bytes


def main() -> int:
    """0 if neither grew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    growth, calls, end = Growth(asked.seed), 0, time.monotonic() + asked.seconds
    while time.monotonic() < end or growth.graphs < 1000 or calls < 5000:
        growth.rounds(500, 100)
        calls += 500
    objects, size = growth.since()
    print(
        f"memory: {2 * calls:,} calls on a graph, {growth.graphs:,} new graphs; {objects:+,} "
        f"objects, {size:+,} bytes"
    )
    return int(objects > MOST_OBJECTS or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
