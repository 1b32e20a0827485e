"""Searches for neighbours of points, also among the images of cells that repeat."""
