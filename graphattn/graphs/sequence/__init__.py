"""Sequences: encoders, decoders, windows, documents, sparse transformers, cross-attention."""

from .basic import full as full
from .basic import self_loops as self_loops
from .basic import causal as causal
from .basic import prefix as prefix
from .basic import sliding_window as sliding_window
from .windows import asymmetric_window as asymmetric_window
from .windows import sinks as sinks
from .windows import logsparse as logsparse
from .factorised import strided as strided
from .factorised import fixed as fixed
from .blocks import block_local as block_local
from .blocks import block_causal as block_causal
from .blocks import block_diffusion as block_diffusion
from .basic import documents as documents
from .labels import bidirectional_segments as bidirectional_segments
from .labels import ranked as ranked
from .basic import global_tokens as global_tokens
from .random_edges import random_sources as random_sources
from .random_edges import erdos_renyi as erdos_renyi
from .data_dependent import routed as routed
from .data_dependent import top_k as top_k
from .data_dependent import lsh_buckets as lsh_buckets
from .bipartite import cross as cross
from .labels import cross_documents as cross_documents
