"""Sequences: encoders, decoders, windows, documents, sparse transformers; one sequence that reads another."""

from ...graph.pattern import sizable
from . import basic, bipartite, blocks, factorised, random_edges, windows
from .basic import documents as documents
from .blocks import block_diffusion as block_diffusion
from .data_dependent import lsh_buckets as lsh_buckets
from .data_dependent import top_k as top_k
from .labels import bidirectional_segments as bidirectional_segments
from .labels import cross_documents as cross_documents
from .labels import ranked as ranked

full, self_loops, causal = sizable(basic.full), sizable(basic.self_loops), sizable(basic.causal)
prefix, sliding_window = sizable(basic.prefix), sizable(basic.sliding_window)
asymmetric_window, logsparse = sizable(windows.asymmetric_window), sizable(windows.logsparse)
sinks = sizable(windows.sinks)
strided, fixed = sizable(factorised.strided), sizable(factorised.fixed)
block_local, block_causal = sizable(blocks.block_local), sizable(blocks.block_causal)
global_tokens, cross = sizable(basic.global_tokens), sizable(bipartite.cross)
random_sources, erdos_renyi = sizable(random_edges.random_sources), sizable(random_edges.erdos_renyi)

__all__ = [
    "full",
    "self_loops",
    "causal",
    "prefix",
    "sliding_window",
    "asymmetric_window",
    "sinks",
    "logsparse",
    "strided",
    "fixed",
    "block_local",
    "block_causal",
    "block_diffusion",
    "documents",
    "bidirectional_segments",
    "ranked",
    "global_tokens",
    "random_sources",
    "erdos_renyi",
    "top_k",
    "lsh_buckets",
    "cross",
    "cross_documents",
]
