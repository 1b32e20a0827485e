"""Measure attention on a graph: ours and everyone else's, side by side, on the machine at hand."""

from .measure import Effort as Effort
from .problem import Problem as Problem
from .report import Report as Report
from .session import run as run
from .session import suite as suite
from .shapes import SHAPES as SHAPES
from .shapes import SUITES as SUITES
