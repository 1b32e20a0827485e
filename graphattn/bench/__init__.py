"""Measure attention on a graph: ours and everyone else's, side by side, on the machine at hand."""

from types import ModuleType as _Module

from .figures import FIGURES as FIGURES
from .pairs import PAIRS as PAIRS
from .problem import Problem as Problem
from .report import Report as Report
from .session import run as run
from .session import suite as suite
from .shapes import SHAPES as SHAPES
from .shapes import SUITES as SUITES
from .turns import Effort as Effort

#: What ``help`` and ``dir`` show: not the files of this room.
__all__ = [name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _Module)]


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name in __all__ or name.startswith("__"))
