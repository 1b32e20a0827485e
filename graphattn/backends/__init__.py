"""One file per way to run attention on a graph, then the choice among them."""

# In the order that explain shows
# isort: off
from .dense import DenseBackend as DenseBackend
from .tiles.backend import TilesBackend as TilesBackend
from .edges import EdgesBackend as EdgesBackend
from .message_passing import MessagePassingBackend as MessagePassingBackend
# isort: on

from .base import BACKENDS as BACKENDS
from .base import Backend as Backend
from .choose import Explanation as Explanation
from .weights import EdgeWeights as EdgeWeights
