"""Kinds of graphs beside the plain one: of heads, of examples, of relations, of layers."""
