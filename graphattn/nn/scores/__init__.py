"""Scores of edges, as functions of query, key and edge features."""

# isort: off
from .base import SCORES as SCORES
from .base import Score as Score
from .base import ScoreFunction as ScoreFunction
from .base import make_score as make_score
from .products import Cosine as Cosine
from .products import Dot as Dot
from .products import General as General
from .of_edges import Additive as Additive
from .of_edges import GATScore as GATScore
from .of_edges import MLPScore as MLPScore
from .of_edges import Gaussian as Gaussian
from .of_edges import Subtraction as Subtraction
