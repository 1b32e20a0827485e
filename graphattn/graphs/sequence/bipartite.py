"""Two sets of nodes: targets that read sources."""

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import band
from ..arguments import call, whole


@sizable
@builder
def cross(num_targets: int, num_sources: int) -> AttentionGraph:
    r"""Every target reads every source: a decoder that reads an encoder, latents that read inputs.

    .. math:: \mathcal{N}(t) = \{ 0, \dots, S - 1 \}

    Args:
        num_targets: T, the nodes that read.
        num_sources: S, the nodes that are read.
    Returns:
        A rule with T * S edges.
    Raises:
        GraphError: If a size is not a whole number >= 0.
    Source:
        Vaswani et al. 2017, section 3.2.3, encoder-decoder attention; Jaegle et al. 2021
        (Perceiver).
    Example:
        >>> print(cross(2, 5))
        AttentionGraph(cross(2, 5): 5 sources -> 2 targets, 10 edges, density 1, rule)
        █ █ █ █ █
        █ █ █ █ █
    """
    T = whole(num_targets, "num_targets")
    S = whole(num_sources, "num_sources")
    return AttentionGraph(band(T, S), call("cross", T, S))
