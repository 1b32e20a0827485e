"""Models by name, and forests beside them."""
