"""Graphs as plain data, and back: what files, configurations and checkpoints hold.

A table of nodes, later ones made of earlier ones: calls of builders, methods and signs, and edges listed as tensors.
The names of calls are looked up, nothing is executed, and builders check their arguments as they always do.
"""

from .read import from_plain as from_plain
from .write import MOST_EDGES as MOST_EDGES
from .write import Savable as Savable
from .write import to_plain as to_plain
