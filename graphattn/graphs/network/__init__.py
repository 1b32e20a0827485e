"""Trees, networks, and graphs made of other graphs."""

from .trees import tree as tree
from .trees import ancestors as ancestors
from .trees import siblings as siblings
from .circles import circulant as circulant
from .circles import butterfly as butterfly
from .circles import hierarchical as hierarchical
from .random import expander as expander
from .random import random_regular as random_regular
from .random import small_world as small_world
from .derived import hypergraph as hypergraph
from .derived import between_types as between_types
