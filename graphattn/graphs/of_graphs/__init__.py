"""Graphs made of graphs: compositions, line graphs, and random graphs of the same degrees."""
