"""Points and meshes as data: files in and out, folders of them, augmentations, batches."""

from ..graphs.mesh.icosphere import icosphere_mesh as icosphere_mesh
from ..graphs.mesh.rings import mesh_edge_ends as mesh_edge_ends
from ..graphs.mesh.rings import mesh_report as mesh_report
from ..graphs.points.curves import curve_order as curve_order
from ..graphs.points.sampling.farthest import farthest_points as farthest_points
from ..graphs.points.voxels import voxel_ids as voxel_ids
from ..lazy import public_names as _public_names
from .augment import RandomDrop as RandomDrop
from .augment import RandomMirror as RandomMirror
from .augment import RandomRotation as RandomRotation
from .augment import RandomStretch as RandomStretch
from .batches import PointBatches as PointBatches
from .files import load as load
from .files import load_frames as load_frames
from .files import save as save
from .files import save_frames as save_frames
from .folder import ShapeFolder as ShapeFolder
from .series import load_trajectories as load_trajectories
from .series import load_trajectory as load_trajectory
from .series import save_trajectory as save_trajectory
from .shape import Shape as Shape
from .structure import AddEdges as AddEdges
from .structure import KeepFarthest as KeepFarthest
from .trajectory import Trajectory as Trajectory

__getattr__, __dir__, __all__ = _public_names(__name__)
