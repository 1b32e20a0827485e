"""Known mistakes, by which a wrong mask or output is explained in words."""
