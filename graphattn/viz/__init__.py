"""Pictures: the mask, the graph where its nodes live, and attention weights in the same place."""

from .graph_picture import plot as plot
from .heads_picture import plot_heads as plot_heads
from .receptive_picture import plot_receptive_field as plot_receptive_field
from .rollout import rollout as rollout
from .turn import to_html as to_html
from .weights_picture import plot_weights as plot_weights
