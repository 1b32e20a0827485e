"""Files in and out: ``load`` and ``save``."""

from . import arrays, extxyz, gltf, las, obj, off, pcd, stl, text  # noqa: F401 (they register what they read and write)
from .curves import bvh, geojson, swc, vtk  # noqa: F401 (they register what they read)
from .ply import reader as ply  # noqa: F401 (they register what they read and write)
from .reading import load as load
from .reading import load_frames as load_frames
from .writing import save as save
from .writing import save_frames as save_frames
