"""Attention on tiles with compacted columns."""
