"""Every cache of the package with weak keys: what it keeps of 200 graphs that were made and
dropped, on a device."""

import gc
from collections.abc import Callable

import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.kernels.cuda import row_work
from graphattn.nn import ShortestPathBias
from graphattn.plans.grouped import by_source, by_target

GRAPHS_MADE = 200


def _points(number: int, device: torch.device) -> ga.AttentionGraph:
    pos = torch.rand(23, 3, generator=torch.Generator().manual_seed(number))
    return ga.graphs.knn(pos, 5).to(device)


def _hub(number: int, device: torch.device) -> ga.AttentionGraph:
    return (
        ga.graphs.global_tokens(200 + number % 3, [3])
        | ga.graphs.sliding_window(200 + number % 3, 7, causal=True)
    ).to(device)


def schedules(device: torch.device) -> int:
    """Rows in one launch, and rows of several kinds with a hub in pieces."""
    row_work._schedules.clear()
    for number in range(GRAPHS_MADE):
        graph = (_points if number % 2 else _hub)(number, device)
        for layout in (by_target(graph, device), by_source(graph, device)):
            work = row_work.schedule(layout.ptr, layout.order)
            assert (work.hubs is None) == (number % 2 == 1)
        if number < GRAPHS_MADE - 1:
            assert len(row_work._live(row_work._schedules)) == 2
        del graph, layout, work
    return len(row_work._live(row_work._schedules))


def whole_layouts(device: torch.device) -> int:
    """Degrees of the whole layout of which rows are a part."""
    row_work._degrees.clear()
    for number in range(GRAPHS_MADE):
        layout = by_target(_points(number, device), device)
        row_work.part_of(row_work.Degrees.of(layout.ptr.diff()), layout.ptr)
        del layout
    return len(row_work._live(row_work._degrees))


def constants_of_pairs(device: torch.device) -> int:
    """Lengths of paths along new graphs, for the pairs of one graph that stays."""
    pairs, bias = GRAPHS["full"]().to(device), ShortestPathBias(num_heads=2).to(device)
    for number in range(GRAPHS_MADE):
        along = ga.graphs.random_neighbours(pairs.num_targets, 3, seed=number).to(device)
        bias(pairs, along)
        del along
    kept = [
        value for key, value in pairs._memo.items() if isinstance(key, tuple) and "by graph" in key
    ]
    assert len(kept) == 1
    return len(kept[0])


#: Where weak keys are made, and the caches there; a file without a cache holds a weak reference for another reason.
CACHES: dict[str, list[Callable[[torch.device], int]]] = {
    "kernels/cuda/row_work.py": [schedules, whole_layouts],
    "kernels/arrays.py": [],  # memory that returns when its array is gone; the key is the memory's own number
    "nn/biases/constant.py": [constants_of_pairs],
    "nn/cache.py": [],  # the layer of a cache of keys and values
    "shapes/batches.py": [],  # the batches that an order belongs to
    "hf/patch.py": [],  # the patch of a model, in a hook of the model
    "hf/state.py": [],  # tickets by the address of a mask: the last eight of a patch, in `tests/hf/test_rows.py`
}


def kept(device: torch.device) -> dict[str, int]:
    """The entries that each cache keeps of graphs that are gone."""
    gc.collect()
    counts = {}
    for cache in [cache for caches in CACHES.values() for cache in caches]:
        counts[cache.__name__] = cache(device)
    return counts
