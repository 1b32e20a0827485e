"""Descriptors of points and of shapes, which a forest or a network without edges reads."""

import torch
from torch import Tensor

from ...arguments import check_shape, floats, one_of
from ...graphs import knn

_NEAREST = (10, 30, 100)
_PAIRS = 4096  # of a shape
_BINS = 32
_ROWS = 4096  # points that are read at once


def local_descriptors(pos: Tensor, normals: Tensor | None = None, *, upward: str = "") -> Tensor:
    """Covariances of the nearest points of each point, and where it stands among them.

    For each of 10, 30 and 100 nearest points their radius, the standard deviations along the
    principal axes, linearity, planarity and scattering, the distance of their mean, and its part
    along the normal (of PCA, without a sign, where there are no normals); with an axis up ``|cos|``
    of the angle to it of the direction of least spread, and the heights of the point above the
    lowest and below the highest of them.

    Args:
        pos: (N, 3), in units that suit all shapes alike.
        normals: (N, 3), unit vectors.
        upward: "x", "y" or "z", the axis that points up; "" is none.

    Returns:
        (N, 27), or (N, 36) with an axis up, in float32. They stay the same when points and normals
        are turned, about the axis up if there is one.

    Source: Weinmann et al. 2015, "Semantic point cloud interpretation based on optimal
    neighborhoods", without the choice of one number.

    Example:
        >>> local_descriptors(torch.rand(200, 3), upward="z").shape
        torch.Size([200, 36])
    """
    one_of(upward, "upward", ("", "x", "y", "z"))
    _check_space(pos, normals)
    widest = knn(pos, _NEAREST[-1], self_loops=True, clamp=True)
    near = widest.source.view(len(pos), -1)
    near = near.gather(1, (pos[near] - pos[:, None]).square().sum(-1).argsort(dim=1, stable=True))
    parts = []
    for k in _NEAREST:
        pieces = [
            _descriptors(pos, normals, upward, at, near[at, :k])
            for at in torch.arange(len(pos)).split(_ROWS)
        ]
        parts.append(torch.cat(pieces))
    return torch.cat(parts, 1)


def _descriptors(
    pos: Tensor, normals: Tensor | None, upward: str, at: Tensor, near: Tensor
) -> Tensor:
    d = (pos[near] - pos[at, None]).double()
    mean = d.mean(1)
    spread = d - mean[:, None]
    values, axes = torch.linalg.eigh(spread.mT @ spread / near.shape[1])
    small, middle, large = values.clamp(min=0).sqrt().unbind(1)
    extent = large.clamp(min=1e-30)
    if normals is None:
        along = (mean * axes[:, :, 0]).sum(1).abs()
    else:
        along = (mean * normals[at].double()).sum(1)
    radius = d.square().sum(-1).amax(1).sqrt()
    parts = [
        radius,
        small,
        middle,
        large,
        (large - middle) / extent,
        (middle - small) / extent,
        small / extent,
    ]
    parts += [mean.norm(dim=1), along]
    if upward:
        axis = "xyz".index(upward)
        parts += [axes[:, axis, 0].abs(), -d[:, :, axis].amin(1), d[:, :, axis].amax(1)]
    return torch.stack(parts, 1).float()


def shape_descriptors(
    pos: Tensor, normals: Tensor | None = None, features: Tensor | None = None
) -> Tensor:
    """Histograms and quantiles over the points of a shape.

    A histogram of the distances of 4,096 pairs over their mean (D2), five quantiles of each feature
    of points, and with normals three histograms of ``|cos|`` of the angles between them: of near,
    farther and far pairs.

    Args:
        pos: (N, 3).
        normals: (N, 3), unit vectors.
        features: (N, F) of points; by default :func:`local_descriptors`.

    Returns:
        (32 + 5 F,), or with normals (56 + 5 F,), in float32: the same when points and normals are
        turned and, but for the features, scaled.

    Source: Osada et al. 2002, "Shape distributions", for D2.

    Example:
        >>> shape_descriptors(torch.rand(200, 3)).shape
        torch.Size([167])
    """
    _check_space(pos, normals)
    if features is None:
        features = local_descriptors(pos, normals)
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randint(len(pos), (2, _PAIRS), generator=draw)
    d = (pos[a] - pos[b]).norm(dim=1)
    spread = d / d.mean().clamp(min=1e-30)
    shares = torch.linspace(0.1, 0.9, 5, device=pos.device).double()
    parts = [
        torch.histc(spread, _BINS, 0, 3) / _PAIRS,
        features.double().quantile(shares, 0).flatten(),
    ]
    if normals is not None:
        cosine = (normals[a] * normals[b]).sum(1).abs()
        limits = (spread < 0.5, (spread >= 0.5) & (spread < 1), spread >= 1)
        parts += [
            torch.histc(cosine[part], _BINS // 4, 0, 1) / part.sum().clamp(min=1) for part in limits
        ]
    return torch.cat([part.float() for part in parts])


def _check_space(pos: Tensor, normals: Tensor | None) -> None:
    hint = "torch.nn.functional.pad(pos, (0, 1)) puts points of a plane in space"
    check_shape(floats(pos, "pos", "(N, 3)", 2), "pos", ("N", 3), hint)
    if normals is not None:
        check_shape(normals, "normals", pos.shape)
