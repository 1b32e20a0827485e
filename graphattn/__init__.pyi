"""The public names of :mod:`graphattn`."""

from . import analysis as analysis
from . import convert as convert
from . import distributed as distributed
from . import graphs as graphs
from . import hf as hf
from . import laws as laws
from . import models as models
from . import nn as nn
from . import nulls as nulls
from . import shapes as shapes
from . import study as study
from . import training as training
from . import viz as viz
from .analysis import audit as audit
from .analysis import facts as facts
from .analysis import leaks as leaks
from .backends import EdgeWeights as EdgeWeights
from .convert.masks import from_mask as from_mask
from .convert.networkx import from_networkx as from_networkx
from .convert.pyg import from_pyg as from_pyg
from .convert.rule import from_rule as from_rule
from .convert.scipy import from_scipy as from_scipy
from .errors import GraphAttnError as GraphAttnError
from .errors import GraphError as GraphError
from .errors import OptionError as OptionError
from .exactness import assert_exact as assert_exact
from .exactness import verify as verify
from .functional import attention as attention
from .functional import explain as explain
from .graph import AttentionGraph as AttentionGraph
from .graph import PerExample as PerExample
from .graph import PerHead as PerHead
from .graph import disjoint_union as disjoint_union
from .graph.edge_index import from_edge_index as from_edge_index
from .hf.patch import patch as patch
from .hf.patch import patched as patched
from .hf.patch import unpatch as unpatch
from .shapes.files import load as load
from .shapes.files import save as save
from .viz import plot as plot
from .viz import plot_shape as plot_shape

__all__: list[str]
__version__: str
