"""Pictures: the mask, the graph where its nodes live, and attention weights in the same place."""

from types import ModuleType as _Module

from .graph_picture import plot as plot
from .rollout import rollout as rollout
from .shape_picture import plot_shape as plot_shape
from .style import png as png
from .turn import to_html as to_html

#: What ``help`` and ``dir`` show: not the files of this room.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _Module)
]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
