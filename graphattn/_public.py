"""Every public name, each from the room that it lives in; :mod:`graphattn` shows them as its own."""

from . import graphs as graphs
from . import nn as nn
from .attention import AttentionOutput as AttentionOutput
from .attention import attention as attention
from .attention import explain as explain
from .backends import EdgeWeights as EdgeWeights
from .errors import GraphAttnError as GraphAttnError
from .graph import AttentionGraph as AttentionGraph
from .graph import Pattern as Pattern
from .graph import PerHead as PerHead
from .graph import Relations as Relations
from .graph import Schedule as Schedule
from .graph import disjoint_union as disjoint_union
from .interop import from_additive_mask as from_additive_mask
from .interop import from_block_mask as from_block_mask
from .interop import from_by_target as from_by_target
from .interop import from_edge_index as from_edge_index
from .interop import from_mask as from_mask
from .interop import from_mask_mod as from_mask_mod
from .interop import from_mha_mask as from_mha_mask
from .interop import from_networkx as from_networkx
from .interop import from_pyg as from_pyg
from .interop import from_rule as from_rule
from .interop import from_scipy as from_scipy
from .interop import to_additive_mask as to_additive_mask
from .interop import to_block_mask as to_block_mask
from .interop import to_by_target as to_by_target
from .interop import to_edge_index as to_edge_index
from .interop import to_mask as to_mask
from .interop import to_mask_mod as to_mask_mod
from .interop import to_mha_mask as to_mha_mask
from .interop import to_networkx as to_networkx
from .interop import to_pyg as to_pyg
from .interop import to_pyg_edge_index as to_pyg_edge_index
from .interop import to_pyg_hetero as to_pyg_hetero
from .interop import to_scipy as to_scipy
from .verify import Report as Report
from .verify import assert_exact as assert_exact
from .verify import find_nonfinite as find_nonfinite
from .verify import verify as verify
from .viz import plot as plot
from .viz import plot_weights as plot_weights
from .viz import rollout as rollout
from .viz import to_html as to_html

__all__ = [name for name in dir() if not name.startswith("_")]
