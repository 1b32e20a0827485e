"""Trees, programs, networks, and graphs made of other graphs."""

from ...graph.pattern import sizable
from . import circles, random
from .derived import between_types, hypergraph
from .trees import ancestors, siblings, tree

circulant, butterfly = sizable(circles.circulant), sizable(circles.butterfly)
hierarchical = sizable(circles.hierarchical)
expander, random_regular = sizable(random.expander), sizable(random.random_regular)
small_world = sizable(random.small_world)

__all__ = [
    "tree", "ancestors", "siblings", "circulant", "butterfly", "hierarchical", "expander", "random_regular",
    "small_world", "hypergraph", "between_types",
]  # fmt: skip
