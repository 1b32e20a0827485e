"""Descriptors of points and shapes: what turns leaves them, what moves changes them."""

import pytest
import torch

from graphattn.errors import ShapeError
from graphattn.nn import local_descriptors, shape_descriptors


def test_descriptors_stay_when_a_shape_is_turned_and_see_a_point_that_moves():
    pos = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))[0]
    for turned, normals, own in ((pos @ turn.T, None, None), (pos @ turn.T, pos @ turn.T, pos)):
        found, wanted = (local_descriptors(*both) for both in ((turned, normals), (pos, own)))
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
        first, second = (
            shape_descriptors(*both, wanted) for both in ((turned, normals), (pos, own))
        )
        # a distance may fall beside a limit
        torch.testing.assert_close(first, second, atol=2.1 / 4096, rtol=0.02)
    assert local_descriptors(pos, upward="z").shape == (90, 36)
    moved = pos.clone()
    moved[0] += 0.3
    assert not torch.allclose(local_descriptors(moved), local_descriptors(pos), atol=1e-3)


def test_a_histogram_of_distances_is_that_of_two_points():
    """Half of the pairs are a point with itself: distances 0 and 2 of the mean."""
    pos = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    found = shape_descriptors(pos, features=pos[:, :1])[:32]
    assert found[found > 0].sum() == 1
    assert (found > 0).sum() == 2
    assert found[0] == pytest.approx(0.5, rel=0.05)


def test_positions_of_a_plane_are_refused():
    plane = torch.rand(9, 2)
    with pytest.raises(ShapeError, match=r"\(N, 3\), got a Tensor \(9, 2\).*pad\(pos, \(0, 1\)\)"):
        local_descriptors(plane)
    assert local_descriptors(torch.nn.functional.pad(plane, (0, 1))).isfinite().all()


def test_normals_of_other_points_are_refused():
    for descriptors in (local_descriptors, shape_descriptors):
        with pytest.raises(
            ShapeError, match=r"normals must have shape \(9, 3\), got a Tensor \(11, 3\)"
        ):
            descriptors(torch.rand(9, 3), torch.rand(11, 3))
