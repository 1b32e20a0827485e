"""Points and meshes as data: files in and out."""

from .files import load as load
from .files import save as save
from .shape import Shape as Shape
