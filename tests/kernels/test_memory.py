"""Memory that is kept: given out once at a time, and not for ever."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.kernels import arrays as memory

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    gc.collect()
    monkeypatch.setattr(memory, "_free", {})


def test_a_piece_is_used_again_once_nothing_refers_to_it():
    first = memory.room(FLOAT, 512, 1024)
    place = first.data_ptr()
    view = first[3:].t()
    del first
    assert memory.room(FLOAT, 512, 1024).data_ptr() != place  # a view of it lives
    held = view.numpy()
    del view
    assert memory.room(FLOAT, 512, 1024).data_ptr() != place  # and now an array
    held[:] = 7.0
    del held
    pieces = [memory.room(FLOAT, 510, 1024) for _ in range(3)]
    assert place in [piece.data_ptr() for piece in pieces]
    assert len({piece.data_ptr() for piece in pieces}) == 3


def test_no_more_is_kept_than_allowed(monkeypatch):
    monkeypatch.setattr(memory, "CACHED", 4 << 20)
    pieces = [memory.room(FLOAT, 1024, 512) for _ in range(5)]  # 2 MiB each
    del pieces
    assert sum(piece.nbytes for piece in memory._free.values()) <= 4 << 20
    large = memory.room(FLOAT, 2048, 1024)  # 8 MiB
    del large
    assert all(piece.nbytes < 8 << 20 for piece in memory._free.values())
    small = memory.room(FLOAT, 10)
    assert small.shape == (10,)


def test_results_of_calls_that_overlap_stay_apart():
    graph = ga.graphs.sliding_window(4096, 9, causal=True).materialise()

    def call(seed):
        draw = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(4096, 16, 8, generator=draw).requires_grad_() for _ in range(3)]
        output = ga.attention(*inputs, graph, backend="edges")
        return [output, *torch.autograd.grad(output.square().sum(), inputs)]

    wanted = [[x.detach().clone() for x in call(seed)] for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(call, range(4)))
            for results, right in zip(found, wanted, strict=True):
                assert all(
                    torch.equal(mine, theirs) for mine, theirs in zip(results, right, strict=True)
                )
