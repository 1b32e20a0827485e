"""Graphs made later: of a size, of positions, or of the queries and keys of a call."""
