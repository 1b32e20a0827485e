"""How a model reads the shapes of a folder: features, levels with graphs, scenes."""
