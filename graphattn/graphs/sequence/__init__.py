"""Sequences: encoders, decoders, windows, documents, sparse transformers; one sequence that reads another."""

from .basic import causal, documents, full, global_tokens, prefix, self_loops, sliding_window
from .cross import cross

__all__ = ["full", "self_loops", "causal", "prefix", "sliding_window", "documents", "global_tokens", "cross"]
