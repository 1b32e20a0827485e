"""Models of images and videos."""
