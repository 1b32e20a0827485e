"""Graphs as plain data, and back: what files, configurations and checkpoints hold.

Edges are tensors, listed or as runs of sources; the calls that made them are text, of which nothing is executed: a
pattern is built when it is given a size, as always.
"""

from .read import from_plain as from_plain
from .write import Savable as Savable
from .write import to_plain as to_plain
