"""Mistakes about a call of attention, each as the output that it would give."""
