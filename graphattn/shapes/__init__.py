"""Points and meshes as data: files in and out, folders of them, augmentations, batches."""

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
from .shape import Shape as Shape
from .structure import AddEdges as AddEdges
from .structure import KeepFarthest as KeepFarthest
