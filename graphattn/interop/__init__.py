"""Graphs from and to what others use: ``from_*`` and ``to_*``, both ways."""

from .edge_index import from_by_target as from_by_target
from .edge_index import from_edge_index as from_edge_index
from .edge_index import to_by_target as to_by_target
from .edge_index import to_edge_index as to_edge_index
from .masks import from_additive_mask as from_additive_mask
from .masks import from_mask as from_mask
from .masks import from_mha_mask as from_mha_mask
from .masks import to_additive_mask as to_additive_mask
from .masks import to_mask as to_mask
from .masks import to_mha_mask as to_mha_mask
from .rule import from_rule as from_rule
