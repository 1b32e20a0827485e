"""How a graph could run: derived once, cached, and never known to the graph."""
