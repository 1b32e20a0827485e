"""Points on a sphere: latitudes and longitudes as positions."""

import numpy as np
import torch
from torch import Tensor

from ...arguments import table
from ...errors import GraphError


def on_sphere(lat: Tensor | np.ndarray, lon: Tensor | np.ndarray) -> Tensor:
    r"""Positions on the unit sphere of latitudes and longitudes, for every builder of points.

    .. math:: p = (\cos\phi \cos\lambda, \; \cos\phi \sin\lambda, \; \sin\phi)

    Neighbours on a map of degrees are others than on the sphere: a degree of longitude is shorter
    towards the poles, and 180 degrees west is 180 degrees east.

    Args:
        lat: :math:`\phi` (N,), degrees north of the equator, from -90 to 90.
        lon: :math:`\lambda` (N,), degrees east; 350 and -10 are one meridian. Of a regular grid
            pass ``*torch.meshgrid(lat, lon, indexing="ij")``: any two shapes that are equal.
    Returns:
        float64 (N, 3), in the order of ``lat.flatten()``. Great circles are angles in radians,
        chords are :math:`2 \sin(\text{angle} / 2)`.
    Raises:
        GraphError: If the shapes differ, or a latitude lies outside -90 to 90.
    Example:
        >>> on_sphere(torch.tensor([0.0, 90.0]), torch.tensor([90.0, 0.0])).round(decimals=3).abs()
        tensor([[0., 1., 0.],
                [0., 0., 1.]], dtype=torch.float64)
    """
    north = table(lat, "lat", "degrees (N,)", GraphError).double()
    east = table(lon, "lon", "degrees (N,)", GraphError).double()
    if north.shape != east.shape:
        raise GraphError(
            f"lat and lon must have one shape, got {tuple(north.shape)} and {tuple(east.shape)}; of "
            'a grid pass torch.meshgrid(lat, lon, indexing="ij")'
        )
    outside = ~(north.abs() <= 90)
    if bool(outside.any()):
        raise GraphError(
            f"lat must be degrees from -90 to 90, got {float(north[outside][0]):g}; is it lon?"
        )
    north = north.flatten().deg2rad()
    east = east.flatten().deg2rad()
    axes = (north.cos() * east.cos(), north.cos() * east.sin(), north.sin())
    return torch.stack(axes, 1)


def degrees(pos: Tensor) -> tuple[Tensor, Tensor] | None:
    """Latitudes and longitudes (N,) of points on the unit sphere around 0; None of other points.

    Example:
        >>> degrees(on_sphere(torch.tensor([30.0]), torch.tensor([-60.0])))
        (tensor([30.0000], dtype=torch.float64), tensor([-60.0000], dtype=torch.float64))
    """
    if pos.shape[1] != 3:
        return None
    x, y, z = pos.double().unbind(1)
    distance = pos.double().norm(dim=1)
    if bool(((distance - 1).abs() > 1e-3).any()):
        return None
    return (z / distance).asin().rad2deg(), torch.atan2(y, x).rad2deg()
