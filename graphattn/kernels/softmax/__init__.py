"""Fused attention over edges: softmax of products, its sums, and their derivatives."""
