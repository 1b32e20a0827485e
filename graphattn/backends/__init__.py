"""One file per way to run attention on a graph, then the choice among them."""

from .choose import BACKENDS as BACKENDS
from .choose import Explanation as Explanation
from .weights import EdgeWeights as EdgeWeights
