"""Nulls: graphs that keep some properties of another, for anyone's comparison of connectivities.

If an arm beats its null, what the null lacks is what it gains by. :func:`graphattn.analysis.kept`
says what a null has in common with its graph.
"""

from ..lazy import public_names as _public_names
from .drawn import alone as alone
from .drawn import everything as everything
from .drawn import permuted as permuted
from .drawn import rewired as rewired
from .drawn import same_in_degrees as same_in_degrees

__getattr__, __dir__, __all__ = _public_names(__name__)
