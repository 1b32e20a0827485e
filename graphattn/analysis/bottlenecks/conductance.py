"""Conductance: the narrowest bottleneck between two parts of a graph."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...printed import Printed
from .undirected import components, two_eigenvalues, undirected

_EXACT = 16  # nodes up to which all cuts are tried
_DENSE = 512  # nodes up to which all eigenvalues are computed
_RESTARTS = 400


@dataclass(frozen=True, repr=False)
class Conductance(Printed):
    """Bounds found by :func:`conductance`, and the best cut.

    Args:
        lower: The conductance is at least this.
        upper: And at most this, which ``part`` has.
        exact: True if both are the same: all cuts were tried, or the graph is not connected.
        part: The nodes of one side of the best cut that was found, int64 (k,).
        second_eigenvalue: Of the normalised Laplacian; the conductance is at least half of it.
    """

    lower: float
    upper: float
    exact: bool
    part: Tensor
    second_eigenvalue: float

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {**asdict(self), "part": self.part.tolist()}

    def in_full(self) -> str:
        sides = f"{self.part.numel():,} nodes on one side"
        if self.exact:
            return f"conductance {self.upper:.4g} ({sides})"
        return (
            f"conductance from {self.lower:.4g} (half the second eigenvalue) to "
            f"{self.upper:.4g} (a cut, {sides})"
        )


def conductance(graph: AttentionGraph) -> Conductance:
    r"""The least share of edges that leave a part: near 0 if a bottleneck cuts the graph in two.

    .. math:: \min_{0 < vol(S) \le vol(V) / 2} \frac{|\partial S|}{vol(S)}, \qquad
        \frac{\lambda_2}{2} \le \cdot \le \sqrt{2 \lambda_2}

    Of the undirected graph underneath, as :func:`effective_resistance`; nodes without an edge
    belong to no side. Exact up to 16 nodes, and where the graph is not connected (0). On larger
    graphs the lower bound is Cheeger's, by the second eigenvalue of the normalised Laplacian, and
    the upper one the best cut along its eigenvector, which never exceeds Cheeger's.

    Args:
        graph: A square graph with at least one edge between two nodes.
    Raises:
        GraphError: If the graph is not square, has no such edge, is too large, or ARPACK does not
            converge.
    Source:
        Chung 1997, "Spectral Graph Theory", chapter 2.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> print(conductance(sliding_window(8, 2, causal=True)))  # a path is cut in its middle: 1 of 7 ends of edges
        conductance 0.1429 (4 nodes on one side)
        >>> print(conductance(sliding_window(64, 2, causal=True)))
        conductance from 0.0006215 (half the second eigenvalue) to 0.01587 (a cut, 32 nodes on one side)
    """
    matrix = undirected(graph, "conductance")
    if matrix.nnz == 0:
        raise GraphError("conductance needs an edge between two nodes, and this graph has none")
    nodes = np.flatnonzero(np.diff(matrix.indptr))
    matrix = matrix[nodes][:, nodes]
    label = components(matrix)
    degree = np.asarray(matrix.sum(1)).reshape(-1)
    if int(label.max()):
        volume = np.bincount(label.numpy(), weights=degree)
        part = torch.from_numpy(nodes[label.numpy() == volume.argmin()])
        return Conductance(0.0, 0.0, True, part, 0.0)
    second, vector = _second(matrix, degree, graph.name)
    if len(nodes) <= _EXACT:
        least, side = _of_all_cuts(matrix.toarray(), degree)
        return Conductance(least, least, True, torch.from_numpy(nodes[side]), second)
    most, side = _best_cut_along(matrix, degree, vector)
    return Conductance(second / 2, most, False, torch.from_numpy(np.sort(nodes[side])), second)


def _second(matrix: Any, degree: np.ndarray, name: str) -> tuple[float, np.ndarray]:
    """The second eigenvalue of the normalised Laplacian, and its eigenvector by nodes, harmonic."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import eigsh

    root = diags_array(1 / np.sqrt(degree))
    scaled = root @ matrix @ root
    if len(degree) <= _DENSE:
        values, vectors = np.linalg.eigh(scaled.toarray())
    else:
        subject = f"conductance of {name}"
        values, vectors = two_eigenvalues(eigsh, scaled, subject, _RESTARTS, which="LA", ncv=40)
    second = np.argsort(values)[-2]
    return max(0.0, 1 - float(values[second])), vectors[:, second] / np.sqrt(degree)


def _of_all_cuts(dense: np.ndarray, degree: np.ndarray) -> tuple[float, np.ndarray]:
    """Node 0 is on the other side, so that each cut is tried once."""
    n = len(degree)
    side = (np.arange(1, 1 << (n - 1))[:, None] >> np.arange(n - 1) & 1).astype(np.float64)
    side = np.concatenate((np.zeros((len(side), 1)), side), 1)
    volume = side @ degree
    cut = volume - ((side @ dense) * side).sum(1)
    share = cut / np.minimum(volume, degree.sum() - volume)
    best = int(share.argmin())
    return float(share[best]), np.flatnonzero(side[best])


def _best_cut_along(
    matrix: Any, degree: np.ndarray, vector: np.ndarray
) -> tuple[float, np.ndarray]:
    """The best of the cuts between the nodes with the smallest numbers and the others."""
    n = len(degree)
    order = np.argsort(vector, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    pairs = matrix.tocoo()
    one = place[pairs.row]
    other = place[pairs.col]
    steps = np.zeros(n + 1)
    ahead = one < other  # such an edge is cut behind its first end and no longer behind its last
    np.add.at(steps, one[ahead], pairs.data[ahead])
    np.add.at(steps, other[ahead], -pairs.data[ahead])
    cut = steps.cumsum()[: n - 1]
    volume = degree[order].cumsum()[: n - 1]
    share = cut / np.minimum(volume, degree.sum() - volume)
    best = int(share.argmin())
    if volume[best] * 2 <= degree.sum():
        smaller_side = order[: best + 1]
    else:
        smaller_side = order[best + 1 :]
    return float(share[best]), smaller_side
