"""Laws: what a graph settles before anything is trained, for any graphs in any training loop.

A ceiling bounds the score of every model along a graph: train, and compare. Numbers of a graph by
which laws order arms are ``fidelity`` and ``mixing``, and in :mod:`graphattn.analysis`:
``receptive_field``, ``influence_distribution`` (shares of walks), ``commute_time``,
``spectral_gap``.
"""

from ..lazy import public_names as _public_names
from .ceilings import ceiling as ceiling
from .colours import colours as colours
from .reach import reached as reached
from .walks import fidelity as fidelity
from .walks import mixing as mixing

__getattr__, __dir__, __all__ = _public_names(__name__)
