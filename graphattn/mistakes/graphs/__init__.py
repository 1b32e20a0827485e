"""Mistakes about a graph: the calls that made it with one thing wrong."""
