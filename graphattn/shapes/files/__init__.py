"""Files in and out: ``load`` and ``save``."""

from . import arrays, gltf, las, obj, off, pcd, ply, stl, text  # noqa: F401 (they register what they read and write)
from .reading import load as load
from .writing import save as save
