"""An order of the targets in which neighbours stand together."""

import numpy as np
import torch
from torch import Tensor

from .listed import Listed

HUB = 8  # times the mean degree; beyond it a node is near all others, and carries no order


def _is_of_hub(node: np.ndarray, num_nodes: int) -> np.ndarray:
    """True for edges whose end ``node`` (E,) is a hub."""
    return np.bincount(node)[node] > HUB * max(1.0, len(node) / num_nodes)


def cuthill_mckee(edges: Listed) -> Tensor:
    """The targets in reverse Cuthill-McKee order: breadth first, from a node of least degree.

    Two targets are neighbours where they read a common source; sources and targets of over eight
    times the mean degree are skipped. Int64 (T,). Source: Cuthill and McKee 1969.
    """
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    T = edges.num_targets
    S = edges.num_sources
    target = edges.target.cpu().numpy()
    source = edges.source.cpu().numpy()
    if len(target) == 0:
        return torch.arange(T)
    keep = ~(_is_of_hub(target, T) | _is_of_hub(source, S))
    target = target[keep]
    source = source[keep] + T
    rows = np.concatenate((target, source))
    columns = np.concatenate((source, target))
    ones = np.ones(len(rows), dtype=np.int8)
    symmetric = coo_array((ones, (rows, columns)), shape=(T + S, T + S)).tocsr()
    order = reverse_cuthill_mckee(symmetric, symmetric_mode=True)
    return torch.from_numpy(order[order < T].astype(np.int64))
