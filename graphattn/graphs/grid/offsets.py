"""One place of a convolution's kernel: every node reads the node at an offset from it."""

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import product
from ..arguments import axes, call, per_axis
from .axes import cell_window


@sizable
@builder
def shifted(
    size: tuple[int, ...] | int,
    by: tuple[int, ...] | int,
    *,
    stride: tuple[int, ...] | int = 1,
) -> AttentionGraph:
    r"""Every node of a sequence or grid reads the one node at an offset from it, if there is one.

    .. math:: \mathcal{N}(t) = \{ s : s = k t + o \text{ on every axis} \}

    Args:
        size: Length of every axis of the sources, (height, width) for an image; any number of axes.
        by: o, the step from a target to its source, negative for sources before it; on every axis
            or one number for all.
        stride: k, sources from one target to the next, on every axis or one number for all.
    Returns:
        A rule of in-degree at most 1: targets whose source lies outside have none, which is zero
        padding. There are ``ceil(size / k)`` targets on every axis.
    Raises:
        GraphError: If a length is not a whole number >= 0, or a stride not >= 1.
    Source:
        Cordonnier et al. 2020, theorem 1: a convolution is attention with one head for each offset
        of its kernel; :meth:`graphattn.nn.GraphAttention.from_conv` returns such a layer and its
        graphs.
    Example:
        >>> print(shifted(4, -1) | shifted(4, 1))
        AttentionGraph(shifted((4,), (-1,)) | shifted((4,), (1,)): 4 nodes, 6 edges, density 0.375, rule)
        · █ · ·
        █ · █ ·
        · █ · █
        · · █ ·
        >>> print(shifted(6, 1, stride=2))
        AttentionGraph(shifted((6,), (1,), stride=(2,)): 6 sources -> 3 targets, 3 edges, density 0.167, rule)
        · █ · · · ·
        · · · █ · ·
        · · · · · █
    """
    size = axes(size)
    steps = per_axis(by, len(size), "by", None)
    strides = per_axis(stride, len(size), "stride", 1)
    sides = zip(size, steps, strides, strict=True)
    parts: list[Edges] = [
        cell_window(-(-length // axis_stride), length, 1, axis_stride, 1, step)
        for length, step, axis_stride in sides
    ]
    return AttentionGraph(product(parts), call("shifted", size, steps, stride=strides))
