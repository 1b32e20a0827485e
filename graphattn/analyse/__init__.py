"""Questions that a graph answers: exact, and fast on rules and on millions of edges; what costs too much is refused."""

from ..graph import reach as reach
from .audit import Audit as Audit
from .audit import audit as audit
from .connectivity import Connectivity as Connectivity
from .connectivity import connectivity as connectivity
from .facts import Facts as Facts
from .facts import FactsOfMany as FactsOfMany
from .facts import facts as facts
from .find_leaks import FoundLeaks as FoundLeaks
from .find_leaks import find_leaks as find_leaks
from .flops import Flops as Flops
from .flops import flops as flops
from .hops import Hops as Hops
from .hops import hops as hops
from .leaks import Leaks as Leaks
from .leaks import leaks as leaks
from .path_counts import path_counts as path_counts
from .receptive_field import ReceptiveField as ReceptiveField
from .receptive_field import receptive_field as receptive_field
from .spectrum import spectral_gap as spectral_gap
from .tile_fill import TileFill as TileFill
from .tile_fill import tile_fill as tile_fill
from .universality import Universality as Universality
from .universality import universality as universality
