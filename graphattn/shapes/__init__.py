"""Points and meshes as data: files in and out, folders of them."""

from .files import load as load
from .files import save as save
from .folder import ShapeFolder as ShapeFolder
from .shape import Shape as Shape
