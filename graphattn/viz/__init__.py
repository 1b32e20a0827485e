"""Pictures: the mask, the graph where its nodes live, and attention weights in the same place."""

from types import ModuleType as _Module

from .graph_picture import plot as plot
from .heads_picture import plot_heads as plot_heads
from .receptive_picture import plot_receptive_field as plot_receptive_field
from .rollout import rollout as rollout
from .shape_picture import plot_shape as plot_shape
from .shape_picture import shape_png as shape_png
from .turn import to_html as to_html
from .weights_picture import plot_weights as plot_weights

#: What ``help`` and ``dir`` show: not the files of this room.
__all__ = [name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _Module)]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
