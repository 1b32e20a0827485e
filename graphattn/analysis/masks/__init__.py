"""A mask beside the graph that it should be."""
