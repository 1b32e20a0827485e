"""Plans: derivations of a graph for the backends, cached; the graph does not depend on them."""
