"""Bottlenecks of a graph: components, conductance, resistance, curvature, spectrum."""
