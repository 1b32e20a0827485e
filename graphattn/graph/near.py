"""An order of the targets in which neighbours stand together."""

import numpy as np
import torch
from torch import Tensor

from .listed import Listed

HUB = 8  # times the mean degree; beyond it a node is near all others, and carries no order


def cuthill_mckee(edges: Listed) -> Tensor:
    """The targets in the reverse order of Cuthill and McKee (1969): breadth first, from a node of
    least degree.

    Two targets are neighbours where they read a common source; sources and targets of over eight
    times the mean degree are skipped. Int64 (T,).
    """
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    T = edges.num_targets
    S = edges.num_sources
    target = edges.target.cpu().numpy()
    source = edges.source.cpu().numpy()
    if len(target) == 0:
        return torch.arange(T)
    few = [
        np.bincount(end)[end] <= HUB * max(1.0, len(end) / n)
        for end, n in ((target, T), (source, S))
    ]
    target = target[few[0] & few[1]]
    source = source[few[0] & few[1]] + T
    ends = np.concatenate((target, source)), np.concatenate((source, target))
    both_ways = coo_array(
        (np.ones(len(ends[0]), dtype=np.int8), ends), shape=(T + S, T + S)
    ).tocsr()
    order = reverse_cuthill_mckee(both_ways, symmetric_mode=True)
    return torch.from_numpy(order[order < T].astype(np.int64))
