"""Pictures: the mask, the graph where its nodes live, and attention weights in the same place."""

from ..lazy import public_names as _public_names
from .graph_picture import plot as plot
from .rollout import rollout as rollout
from .shape_picture import plot_shape as plot_shape
from .style import png as png
from .turn import to_html as to_html

__getattr__, __dir__, __all__ = _public_names(__name__)
