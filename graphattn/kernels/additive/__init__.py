"""Additive scores over edges."""
