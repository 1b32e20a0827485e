"""Sequences: encoders, decoders, windows, documents, sparse transformers; one sequence that reads another."""

from ...graph.pattern import sizable
from . import basic, bipartite
from .basic import documents as documents

full, self_loops, causal = sizable(basic.full), sizable(basic.self_loops), sizable(basic.causal)
prefix, sliding_window = sizable(basic.prefix), sizable(basic.sliding_window)
global_tokens, cross = sizable(basic.global_tokens), sizable(bipartite.cross)

__all__ = ["full", "self_loops", "causal", "prefix", "sliding_window", "documents", "global_tokens", "cross"]
