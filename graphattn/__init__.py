"""Attention as message passing over explicit directed graphs: an edge s -> t means "t may read s".

A graph says what may read what; attention runs on it, exactly::

    import graphattn as ga

    graph = ga.graphs.sliding_window(64, 9, causal=False) | ga.graphs.global_tokens(64, [0])
    print(graph); ga.plot(graph); print(ga.explain(graph, heads=4))

    output = ga.attention(query, key, value, graph)  # (..., nodes, heads, width)
    layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)
    print(ga.verify(layer, graph))  # against plain dense attention

* ``graphs``: builders; ``from_edge_index``, ``from_mask``, ... and ``convert``: graphs of other
  libraries, both ways;
* ``AttentionGraph``, ``PerHead``, ``PerExample``, ``disjoint_union``: what they return, and its
  algebra;
* ``attention``, ``explain``, ``nn``, ``models``: run on a graph, and see how it would run;
* ``facts``, ``leaks``, ``audit`` and ``analysis``: questions to a graph, or to the
  graphs of layers;
* ``verify``, ``assert_exact``: measure that it is right;
* ``patch``, ``patched``, ``unpatch`` and ``hf``: models of Hugging Face on any graph;
* ``study``: settle by experiment what a connectivity buys; ``training``: folders of shapes;
* ``distributed``: one graph for many processes, exactly;
* ``plot``, ``plot_shape`` and ``viz``: pictures;
* ``save``, ``load``: graphs, clouds and meshes in files.
"""

import sys

from .lazy import attach_stub as _attach_stub
from .versions import VERSION

__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
__version__ = VERSION

if "torch" in sys.modules:  # a script may read its checkpoint before it uses any name of ours
    from .graph.saving import pickles as _pickles  # noqa: F401
