"""Graphs: which target may read which source, as integers only, without floats or weights."""

from .deferred.chosen import Chosen as Chosen
from .deferred.pattern import Pattern as Pattern
from .graph import EMPTY as EMPTY
from .graph import FULL as FULL
from .graph import PARTIAL as PARTIAL
from .graph import AttentionGraph as AttentionGraph
from .graph import disjoint_union as disjoint_union
from .graph import need_graph as need_graph
from .graph import need_nodes as need_nodes
from .graph import need_square as need_square
from .kinds.layers import reach as reach
from .kinds.per_example import PerExample as PerExample
from .kinds.per_head import PerHead as PerHead
from .kinds.relations import Relations as Relations
from .saving import pickles as _pickles  # noqa: F401 - how graphs are pickled
