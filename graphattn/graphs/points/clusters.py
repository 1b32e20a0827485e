"""Clusters: points pooled into one node."""

import torch
from torch import Tensor

from ...arguments import check_range
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.forms import partition
from ...graph.limits import refuse_over
from ..arguments import call, integers, whole


@builder
def clusters(ids: Tensor, num_clusters: int | None = None) -> AttentionGraph:
    r"""Points are the sources, their clusters the targets: a cluster reads its members.

    .. math:: \mathcal{N}(c) = \{ s : i_s = c \}

    In ``.reverse()`` a point reads its cluster. With a graph of points between the two,
    ``clusters(ids) @ graph @ clusters(ids).reverse()``, clusters read the clusters that their
    members read.

    Args:
        ids: (N,) integers, the cluster of every point; -1 is a point without one.
            :func:`~graphattn.shapes.voxel_ids` for voxels, ``sklearn.cluster`` or superpoints for
            others.
        num_clusters: C; the largest id plus one by default. A cluster may be empty.
    Returns:
        A rule with N sources and C targets, on the device of ``ids``.
    Raises:
        GraphError: If ``ids`` is not integer (N,), an id is below -1 or not below ``num_clusters``,
            or the clusters would take more than 4 GiB at 64 bytes each.
    Source:
        Wu et al. 2022 (Point Transformer V2), grid pooling; Robert et al. 2023 (Superpoint
        Transformer). They pool the features of the members by a maximum or a mean; a softmax of
        equal scores is the mean.
    Example:
        >>> print(clusters(torch.tensor([1, 0, 1, 2, -1])))
        AttentionGraph(clusters([1, 0, 1, 2, ...]): 5 sources -> 3 targets, 4 edges, density 0.267, rule)
        · █ · · ·
        █ · █ · ·
        · · · █ ·
    """
    numbers = integers(ids, "ids")
    count = 0
    if numbers.numel():
        count = int(numbers.max()) + 1
    if num_clusters is None:
        C = max(count, 0)
    else:
        C = whole(num_clusters, "num_clusters")
    # -1 is a point without a cluster
    check_range(numbers, "ids", C, ", the clusters", first=-1)
    instead = "number them without gaps: torch.unique(ids, return_inverse=True)[1]"
    refuse_over(64 * C, f"clusters with C = {C:,}", instead)
    name = call("clusters", numbers, num_clusters=num_clusters)
    labels = numbers.cpu()
    # a unique label, which no target has
    labels = torch.where(labels < 0, -1 - torch.arange(labels.numel()), labels)
    return AttentionGraph(partition(torch.arange(C), labels), name, numbers.device)
