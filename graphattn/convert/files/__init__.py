"""Files in, arrays out: edges and masks, with a clear error for everything that is none of them.

Every loader reads one regular file of at most ``MAX_BYTES`` (1 GiB; ``max_bytes=`` raises it), runs nothing that the
file contains, opens nothing that it names, and raises only :class:`~graphattn.errors.LoaderError`. Text takes about ten
times the size of the file in memory while it is read, at most 35 times when every number has one digit.
"""

from ._guard import MAX_BYTES as MAX_BYTES
from .edges import Edges as Edges
from .edges import load_edges as load_edges
from .mask import load_mask as load_mask
from .save import save_edges as save_edges
from .sniff import sniff as sniff
