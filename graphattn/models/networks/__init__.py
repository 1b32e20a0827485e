"""Models of graphs of data, and associative memories."""
