"""Collapse of features: how far nodes are from their mean."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import floats


def spread(x: Any) -> Tensor:
    r"""Distance of the nodes' features to their mean, relative to their norm: 0 if all are equal.

    .. math:: \mu(X) = \lVert X - \mathbf{1} \bar{x}^\top \rVert_F \, / \, \lVert X \rVert_F

    Layers of attention average what targets read, so that it falls layer by layer, at the rate of
    :func:`graphattn.analysis.spectral_gap` where scores are equal.

    Args:
        x: Features (..., N, C), floats.
    Returns:
        (...), from 0 to 1; 0 for features that are all 0.
    Raises:
        ShapeError: If ``x`` is no tensor of floats (..., N, C).
    Source:
        Dong et al. 2021, "Attention is not all you need", section 2. *What differs:* the Frobenius
        norm for theirs of 1 and infinity, and the mean for their nearest equal rows, which it is in
        this norm.
    Example:
        >>> spread(torch.tensor([[3.0, 4.0], [3.0, 4.0]])), spread(torch.tensor([[1.0], [-1.0]]))
        (tensor(0.), tensor(1.))
    """
    floats(x, "x", "(..., N, C), the features of nodes", 2)
    size = torch.linalg.matrix_norm(x)
    apart = torch.linalg.matrix_norm(x - x.mean(-2, keepdim=True))
    return apart / torch.where(size > 0, size, 1.0)
