"""Inputs of a model from the shapes of a folder: features, levels with graphs, scenes."""
