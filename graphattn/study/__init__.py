"""Experiments on connectivity: arms that differ in the graph alone, and their controls."""

from ..lazy import public_names as _public_names
from ..statistics.intervals import seeds_needed as seeds_needed
from .claims import Claim as Claim
from .comparison import Budget as Budget
from .comparison import Comparison as Comparison
from .comparison import Training as Training
from .data import Data as Data
from .data import Sample as Sample
from .network import CustomModel as CustomModel
from .network import Model as Model
from .page import Report as Report
from .page import report as report
from .plan import Study as Study
from .run import run as run

__getattr__, __dir__, __all__ = _public_names(__name__)
