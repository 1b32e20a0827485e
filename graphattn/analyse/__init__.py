"""Exact answers about graphs, fast on rules and on millions of edges, or refused as too costly."""

from ..graph import reach as reach
from .audit import audit as audit
from .conductance import conductance as conductance
from .connectivity import connectivity as connectivity
from .curvature import forman_curvature as forman_curvature
from .curvature import ollivier_ricci_curvature as ollivier_ricci_curvature
from .facts import Facts as Facts
from .facts import facts as facts
from .find_leaks import find_leaks as find_leaks
from .flops import flops as flops
from .hops import hops as hops
from .influence import influence_distribution as influence_distribution
from .influence import jacobian_bound as jacobian_bound
from .influence import jacobian_norms as jacobian_norms
from .leaks import leaks as leaks
from .path_counts import path_counts as path_counts
from .receptive_field import receptive_field as receptive_field
from .resistance import commute_time as commute_time
from .resistance import effective_resistance as effective_resistance
from .spectrum import spectral_gap as spectral_gap
from .tile_fill import tile_fill as tile_fill
from .universality import universality as universality
