"""Dense twins: attention on a graph as torch alone writes it down, whole or on pieces of the graph."""
