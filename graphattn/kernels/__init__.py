"""Tensors in, tensors out: no graph, no module, no choice."""
