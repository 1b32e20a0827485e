"""Measure and judge exactness; the dense twins share no code with what they judge."""

from ..twins.dense import DenseGraphAttention as DenseGraphAttention
from ..twins.dense import dense_attention as dense_attention
from .engine import assert_exact as assert_exact
from .engine import verify as verify
from .report import Report as Report
from .symmetry.report import SymmetryReport as SymmetryReport
