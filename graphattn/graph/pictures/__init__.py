"""Masks of graphs as text and as small images, whole, in part, and side by side."""
