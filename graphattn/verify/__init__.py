"""Measure and judge exactness; the dense twins share no code with what they judge."""

from .engine import assert_exact as assert_exact
from .engine import verify as verify
from .nonfinite import Nonfinite as Nonfinite
from .nonfinite import find_nonfinite as find_nonfinite
from .report import Report as Report
from .twins import DenseGraphAttention as DenseGraphAttention
from .twins import dense_attention as dense_attention
