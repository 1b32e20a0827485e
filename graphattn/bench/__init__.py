"""Attention on a graph, timed beside torch's SDPA and PyG on the machine at hand."""

from .peers import Peer as Peer
from .peers import Problem as Problem
from .timing import Comparison as Comparison
from .timing import compare as compare
