"""Real inputs that come with the installed packages: nothing is downloaded."""

import ast
import codecs
import importlib.util
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_KM_PER_DEGREE = 111.32


def terrain(step: int) -> tuple[Tensor, Tensor]:
    """The elevation raster of a ridge in Tennessee that matplotlib carries, ``step`` x ``step``
    samples to a vertex.

    Returns:
        ``pos`` (N, 3): east, north and height in km. ``faces`` int64 (F, 3): two triangles to a
            square of the raster.
    """
    from matplotlib.cbook import get_sample_data

    raster = get_sample_data("jacksboro_fault_dem.npz")
    height = torch.as_tensor(raster["elevation"].astype(np.float32)) / 1000
    height = torch.nn.functional.avg_pool2d(height[None], step)[0]
    rows, columns = height.shape
    south = step * _KM_PER_DEGREE * float(raster["dy"])
    east = step * _KM_PER_DEGREE * float(raster["dx"]) * float(np.cos(np.radians(raster["ymin"])))
    y, x = torch.meshgrid(
        -south * (torch.arange(rows) + 0.5), east * (torch.arange(columns) + 0.5), indexing="ij"
    )
    corner = torch.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = corner[:-1, :-1], corner[:-1, 1:], corner[1:, :-1], corner[1:, 1:]
    faces = torch.cat(
        (torch.stack((a, c, b), -1).reshape(-1, 3), torch.stack((b, c, d), -1).reshape(-1, 3))
    )
    return torch.stack((x, y, height), -1).reshape(-1, 3), faces


def digit(index: int = 3) -> Tensor:
    """A handwritten digit of scikit-learn's, (8, 8), grey values in [0, 1]."""
    from sklearn.datasets import load_digits

    return torch.as_tensor(load_digits().images[index], dtype=torch.float32) / 16


def zen_of_python() -> list[str]:
    """The words and stops of Python's own ``this.py``, whose text is written in rot13."""
    spec = importlib.util.find_spec("this")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("this Python comes without its module this.py")
    source = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    text = next(node.value for node in source.body if isinstance(node, ast.Assign))
    return re.findall(r"[\w'-]+|[^\w\s]", codecs.decode(ast.literal_eval(text), "rot13"))


def one_hot(words: list[str]) -> Tensor:
    """(N, V) of zeros and ones: the word at each place of a text."""
    numbers = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return torch.nn.functional.one_hot(torch.tensor([numbers[word] for word in words])).float()
