"""Pictures: the mask, the graph where its nodes live, and attention weights in the same place."""

from .graph_picture import plot as plot
from .rollout import rollout as rollout
from .turn import to_html as to_html
from .weights_picture import plot_weights as plot_weights
