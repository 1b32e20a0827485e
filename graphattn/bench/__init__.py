"""Attention on a graph, timed beside torch's SDPA and PyG on the machine at hand."""

from .peers import AttentionCall as AttentionCall
from .peers import Peer as Peer
from .timing import PeerComparison as PeerComparison
from .timing import compare as compare
