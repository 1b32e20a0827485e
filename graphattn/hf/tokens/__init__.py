"""The tokens of a call of a patched model: which rows and sequences they are, and which were computed before."""
