"""Biases: modules that give a graph's edges a number for each head,
``layer(x, graph, score_bias=bias(graph))``.
"""
