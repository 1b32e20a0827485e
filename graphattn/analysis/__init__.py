"""Exact answers about graphs, fast on rules and on millions of edges, or refused as too costly.

Its public names::

    audit: Where a mask differs from the graph that it should be, and by which mistake.
    kept: Which properties a control has in common with its graph: degrees, reach, clustering.
    leaks: Whether some target depends on a later source, and the shortest path.
    measure_leaks: Leaks of a module: inputs moved one at a time, outputs compared bit for bit.
    facts: All exact facts about a graph that take seconds, printed as a table.
    Facts: The result of facts.
    reach: The layers composed: an edge where a target of the last depends on a source.
    receptive_field: Sources of the first layer that a target depends on after each layer.
    path_counts: Paths from every source of the first layer to a target of the last one.
    hops: Layers until every node depends on all that it ever will.
    connectivity: Components, cycles and roots of a square graph; exact.
    universality: Conditions for universal approximation that a sparse transformer's graphs meet.
    flops: Operations of a forward pass through a transformer block for each graph.
    tile_fill: Number of tiles of the mask that hold an edge, and their fill.
    spectral_gap: One less the second largest modulus of an eigenvalue of uniform attention.
    conductance: The least share of edges that leave a part: near 0 at a bottleneck.
    effective_resistance: Resistance between nodes if edges are resistors of 1 ohm.
    commute_time: Steps, on average, that a random walk takes from one node to another and back.
    forman_curvature: Balanced Forman curvature of every edge; negative at a bottleneck.
    ollivier_ricci_curvature: The same after Ollivier; negative where its ends' neighbours are far.
    influence_distribution: The share of each source in the paths to a target of the last layer.
    jacobian_bound: A bound of how much an output can change with an input, for any weights.
    jacobian_norms: How much each output of a model changes with each input, by gradients.
    find_nonfinite: The nodes and edges whose numbers are NaN or infinite.
    record_weights: The attention weights of every layer of a model, in a call.
    spread: How far nodes are from their mean, over how far they are from 0.
"""

from ..graph import reach as reach
from ..lazy import public_names as _public_names
from .bottlenecks.conductance import conductance as conductance
from .bottlenecks.connectivity import connectivity as connectivity
from .bottlenecks.curvature import forman_curvature as forman_curvature
from .bottlenecks.curvature import ollivier_ricci_curvature as ollivier_ricci_curvature
from .bottlenecks.resistance import commute_time as commute_time
from .bottlenecks.resistance import effective_resistance as effective_resistance
from .bottlenecks.spectrum import spectral_gap as spectral_gap
from .facts import Facts as Facts
from .facts import facts as facts
from .flops import flops as flops
from .kept import kept as kept
from .masks.audit import audit as audit
from .nonfinite import find_nonfinite as find_nonfinite
from .paths.hops import hops as hops
from .paths.influence import influence_distribution as influence_distribution
from .paths.influence import jacobian_bound as jacobian_bound
from .paths.influence import jacobian_norms as jacobian_norms
from .paths.leaks import leaks as leaks
from .paths.measure_leaks import measure_leaks as measure_leaks
from .paths.path_counts import path_counts as path_counts
from .paths.receptive_field import receptive_field as receptive_field
from .recording import record_weights as record_weights
from .spread import spread as spread
from .tile_fill import tile_fill as tile_fill
from .universality import universality as universality

__getattr__, __dir__, __all__ = _public_names(__name__)
