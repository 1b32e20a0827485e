"""Images, videos and other grids, whose nodes are numbered row by row."""
