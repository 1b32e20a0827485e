"""Files of edges and masks as arrays, with a clear error for every other file.

Every loader reads one regular file of at most ``MAX_BYTES`` (1 GiB; ``max_bytes=`` raises it),
executes no content, opens no other file, and raises only :class:`~graphattn.errors.LoaderError`.
Reading text takes about ten times the size of the file in memory, at most 35 times if every number
has one digit.
"""

from ...io.reading import MAX_BYTES as MAX_BYTES
from .edges import EdgeList as EdgeList
from .edges import load_edges as load_edges
from .mask import load_mask as load_mask
from .save import save_edges as save_edges
from .sniff import sniff as sniff
