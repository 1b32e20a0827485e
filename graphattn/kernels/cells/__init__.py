"""Convolutions of cells."""
