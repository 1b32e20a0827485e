"""Experiments on connectivity: arms that differ in the graph alone, and their controls."""

from types import ModuleType as _Module

from ..statistics.intervals import seeds_needed as seeds_needed
from .comparison import Budget as Budget
from .comparison import Comparison as Comparison
from .comparison import Training as Training
from .data import Data as Data
from .data import Sample as Sample
from .judging.claims import Claim as Claim
from .network import Model as Model
from .own import CustomModel as CustomModel
from .pages.report import Report as Report
from .pages.report import report as report
from .plan import Study as Study
from .runs.running import run as run

#: What ``help`` and ``dir`` show: not the files of this room.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and not isinstance(value, _Module)
]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
