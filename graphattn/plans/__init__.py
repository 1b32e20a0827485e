"""Plans: what the backends derive from a graph, once, and cache; the graph does not depend on them."""
