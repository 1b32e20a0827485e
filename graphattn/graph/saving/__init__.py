"""Graphs as plain data, and back: the content of files, configurations and checkpoints.

Edges are tensors, listed or as runs of sources; the calls that made them are text, and reading
executes none of it: a pattern is built when it is given a size.
"""

from .read import from_plain as from_plain
from .read import parsed as parsed
from .write import Savable as Savable
from .write import to_plain as to_plain
