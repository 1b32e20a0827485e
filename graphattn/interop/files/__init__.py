"""Files in, arrays out: meshes, points, edges and masks, with a clear error for everything that is none of them.

Every loader reads one regular file of at most ``MAX_BYTES`` (1 GiB; ``max_bytes=`` raises it), runs nothing that the
file contains, opens nothing that it names, and raises only :class:`~graphattn.errors.LoaderError`.
"""

from graphattn.interop.files._guard import MAX_BYTES as MAX_BYTES
from graphattn.interop.files.edges import Edges as Edges
from graphattn.interop.files.edges import load_edges as load_edges
from graphattn.interop.files.mask import load_mask as load_mask
from graphattn.interop.files.mesh import Mesh as Mesh
from graphattn.interop.files.mesh import MeshNotes as MeshNotes
from graphattn.interop.files.mesh import load_mesh as load_mesh
from graphattn.interop.files.points import load_points as load_points
from graphattn.interop.files.sniff import sniff as sniff
