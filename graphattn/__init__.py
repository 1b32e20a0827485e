"""Attention as message passing over explicit directed graphs: an edge s -> t means "t may read s".

A graph says what may read what; attention runs on it, exactly::

    import graphattn as ga

    graph = ga.graphs.sliding_window(64, window=9) | ga.graphs.global_tokens(64, [0])
    print(graph); ga.plot(graph); print(ga.explain(graph, heads=4))

    output = ga.attention(query, key, value, graph)  # (..., nodes, heads, width)
    layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)
    print(ga.verify(layer, graph))  # against plain dense attention

* ``graphs``: builders; ``from_edge_index``, ``from_mask``, ... and ``convert``: graphs of other
  libraries, both ways;
* ``AttentionGraph``, ``PerHead``, ``disjoint_union``: what they return, and its algebra;
* ``attention``, ``explain``, ``nn``, ``models``: run on a graph, and see how it would run;
* ``facts``, ``leaks``, ``audit``, ``spread`` and ``analyse``: questions to a graph, or to the
  graphs of layers;
* ``verify``, ``assert_exact``: measure that it is right;
* ``patch``, ``patched``, ``unpatch`` and ``hf``: models of Hugging Face on any graph;
* ``study``: settle by experiment what a connectivity buys; ``training``: folders of shapes;
* ``distributed``: one graph for many processes, exactly;
* ``plot``, ``plot_shape`` and ``viz``: pictures;
* ``save``, ``load``: graphs, clouds and meshes in files.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .versions import VERSION

if TYPE_CHECKING:
    from . import analyse as analyse
    from . import convert as convert
    from . import distributed as distributed
    from . import graphs as graphs
    from . import hf as hf
    from . import models as models
    from . import nn as nn
    from . import shapes as shapes
    from . import study as study
    from . import training as training
    from . import viz as viz
    from .analyse.audit import audit as audit
    from .analyse.facts import facts as facts
    from .analyse.leaks import leaks as leaks
    from .analyse.spread import spread as spread
    from .backends import EdgeWeights as EdgeWeights
    from .convert import from_edge_index as from_edge_index
    from .convert import from_mask as from_mask
    from .convert import from_networkx as from_networkx
    from .convert import from_pyg as from_pyg
    from .convert import from_rule as from_rule
    from .convert import from_scipy as from_scipy
    from .errors import GraphAttnError as GraphAttnError
    from .errors import GraphError as GraphError
    from .errors import OptionError as OptionError
    from .exactness import assert_exact as assert_exact
    from .exactness import verify as verify
    from .functional import attention as attention
    from .functional import explain as explain
    from .graph import AttentionGraph as AttentionGraph
    from .graph import PerHead as PerHead
    from .graph import disjoint_union as disjoint_union
    from .hf.patch import patch as patch
    from .hf.patch import patched as patched
    from .hf.patch import unpatch as unpatch
    from .shapes.files import load as load
    from .shapes.files import save as save
    from .viz import plot as plot
    from .viz import plot_shape as plot_shape

#: Where each public name is defined: it is imported when it is used, so that a graph does not wait
#: for PyG.
_HOMES = {
    "analyse.audit": ("audit",),
    "analyse.facts": ("facts",),
    "analyse.leaks": ("leaks",),
    "analyse.spread": ("spread",),
    "backends": ("EdgeWeights",),
    "convert.masks": ("from_mask",),
    "convert.networkx": ("from_networkx",),
    "convert.pyg": ("from_pyg",),
    "convert.rule": ("from_rule",),
    "convert.scipy": ("from_scipy",),
    "errors": ("GraphAttnError", "GraphError", "OptionError"),
    "exactness": ("assert_exact", "verify"),
    "functional": ("attention", "explain"),
    "graph": ("AttentionGraph", "PerHead", "disjoint_union"),
    "graph.edge_index": ("from_edge_index",),
    "hf": ("patch", "patched", "unpatch"),
    "shapes.files": ("load", "save"),
    "viz": ("plot", "plot_shape"),
}
_NAMESPACES = (
    "analyse",
    "convert",
    "distributed",
    "graphs",
    "hf",
    "models",
    "nn",
    "shapes",
    "study",
    "training",
    "viz",
)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__version__ = VERSION
__all__ = [*sorted(_HOME_OF), *_NAMESPACES]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if "torch" in sys.modules:  # a script may read its checkpoint before it uses any name of ours
    from .graph import pickles as _pickles  # noqa: F401
