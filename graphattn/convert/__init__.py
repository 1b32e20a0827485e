"""Graphs of other libraries: ``from_*`` and ``to_*``; a graph as plain data."""

from ..graph.edge_index import from_edge_index as from_edge_index
from .block_mask import from_block_mask as from_block_mask
from .block_mask import to_block_mask as to_block_mask
from .flex import from_mask_mod as from_mask_mod
from .flex import to_mask_mod as to_mask_mod
from .masks import from_mask as from_mask
from .masks import to_mask as to_mask
from .networkx import from_networkx as from_networkx
from .networkx import to_networkx as to_networkx
from .pyg import from_pyg as from_pyg
from .pyg import to_pyg as to_pyg
from .pyg import to_pyg_edge_index as to_pyg_edge_index
from .rule import from_rule as from_rule
from .saving import graph_from_dict as graph_from_dict
from .saving import graph_to_dict as graph_to_dict
from .scipy import from_scipy as from_scipy
from .scipy import to_scipy as to_scipy
from .score_mod import from_score_mod as from_score_mod

# Not in __all__: a star import must not shadow the real networkx and scipy.
__all__ = [name for name in dir() if name.startswith(("from_", "to_", "graph_"))]
