"""Models of points and meshes."""
