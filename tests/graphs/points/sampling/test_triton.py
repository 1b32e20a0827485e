"""Farthest points in one launch: the choices of the CPU, in Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphattn as ga
from graphattn.graphs.points.sampling import farthest

TESTS = Path(__file__).parents[3]
SIZES = [67, 1, 13, 41]


def cloud(seed=0, dims=3):
    """Points of several clouds, some of them twice."""
    draw = torch.Generator().manual_seed(seed)
    pos = torch.randn(sum(SIZES), dims, generator=draw)
    pos[5] = pos[3]
    pos[70:75] = pos[69]
    return pos, torch.repeat_interleave(torch.tensor(SIZES))


@pytest.mark.slow
def test_one_launch_chooses_the_points_of_the_cpu():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, __file__]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 6
    for case in found:
        assert case["ours"] == case["cpu"], case["name"]


def interpreted():
    """The choices of both, for several clouds at once, in blocks and whole."""
    sys.path.insert(0, str(TESTS / "kernels"))
    from interpreted import as_index

    from graphattn.graphs.points.sampling import triton as farthest_triton

    as_index()
    results = []
    for dims in (3, 2):
        pos, batch = cloud(dims=dims)
        for name, options in (
            ("half", {"ratio": 0.5}),
            ("all, from the outermost", {"ratio": 1.0, "start": "outermost"}),
        ):
            results.append((f"{name}, {dims}", pos, batch, options, 4096))
    results += [(f"{name}, in blocks", *rest, 32) for name, *rest, _ in results[:2]]
    told = []
    for name, pos, batch, options, most in results:
        cpu = ga.shapes.farthest_points(pos, batch=batch, **options)
        farthest_triton._AT_ONCE = most
        farthest._on_device = lambda points: farthest_triton.choose
        ours = ga.shapes.farthest_points(pos, batch=batch, **options)
        farthest._on_device = lambda points: None
        told.append({"name": name, "ours": ours.tolist(), "cpu": cpu.tolist()})
    print(json.dumps(told))


if __name__ == "__main__":
    interpreted()
