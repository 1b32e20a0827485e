"""Attention as message passing over explicit directed graphs: an edge s -> t means "t may read s".

A graph says what may read what; attention runs on it, exactly::

    import graphattn as ga

    graph = ga.graphs.sliding_window(64, window=9) | ga.graphs.global_tokens(64, [0])
    print(graph); ga.plot(graph); print(ga.explain(graph, heads=4))

    output = ga.attention(query, key, value, graph)  # (..., nodes, heads, width)
    layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)
    print(ga.verify(layer, graph))  # against plain dense attention

* ``graphs``: builders of graphs; ``from_*`` and ``to_*``: graphs that others hold, both ways;
* ``AttentionGraph``, ``disjoint_union``: what they return, and its algebra;
* ``attention``, ``explain``, ``nn``: run on a graph, and see how it would run;
* ``facts``, ``hops``, ``receptive_field``, ``leaks``, ``audit`` and others: ask the graph, or the layers' graphs;
* ``save_graph``, ``load_graph``, ``graph_to_dict``: graphs in files and in configurations;
* ``verify``, ``assert_exact``, ``find_nonfinite``, ``find_leaks``: measure that it is right;
* ``study``: settle by experiment what a connectivity buys;
* ``plot``, ``plot_weights``, ``plot_heads``, ``plot_receptive_field``, ``rollout``, ``to_html``: look at it;
* ``load``, ``save``, ``plot_shape``: clouds and meshes in files, and coloured by what is known of them.
"""

import pkgutil
import re
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._checkpoints import let_torch_load_graphs
from .versions import VERSION as __version__  # noqa: F401 (public)

if TYPE_CHECKING:
    from ._public import *  # noqa: F403 (for type checkers, who read that file)
    from .attention import attention as attention
    from .verify import verify as verify

_FUNCTIONS = ("attention", "verify")  # public functions with the name of the room that they live in
_LINE = re.compile(rb"^from (\.[\w.]*) import (\w+) as \2", re.MULTILINE)
_ROOMS = {name.decode(): room.decode() for room, name in _LINE.findall(pkgutil.get_data(__name__, "_public.py") or b"")}


class _Package(ModuleType):
    """This package. A name is loaded from its room in ``_public.py`` when it is used: a graph does not wait for PyG."""

    __all__ = tuple(sorted(_ROOMS))

    def __getattr__(self, name: str) -> Any:
        if name not in _ROOMS:
            raise AttributeError(f"module 'graphattn' has no attribute {name!r}", name=name, obj=self)
        room = _ROOMS[name]
        if room == ".":
            return import_module(f".{name}", __name__)
        setattr(self, name, getattr(import_module(room, __name__), name))
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *(name for name in super().__dir__() if name.startswith("__"))})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FUNCTIONS or not isinstance(value, ModuleType):  # importing a room must not hide its function
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
let_torch_load_graphs()
