"""A small example of each model, which tests build, train, compile, export and save."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=type[nn.Module])


class Example(NamedTuple):
    """A small model and its call."""

    make: Callable[[float], nn.Module]
    """Constructor, called with a rate of dropout."""
    inputs: Callable[[int], tuple[Tensor, ...]]
    """Tensors for a size of the batch, which comes first."""
    graphs: Callable[[], tuple[Any, ...]] = tuple
    """Further arguments of ``forward``."""


EXAMPLES: dict[str, Example] = {}


def tokens(*lengths: int) -> Callable[[int], tuple[Tensor, ...]]:
    """Inputs (batch, length) of integers below 11."""
    return lambda batch: tuple(torch.randint(11, (batch, length)) for length in lengths)


def features(*shape: int) -> Callable[[int], tuple[Tensor, ...]]:
    """One input (batch, ...) of floats."""
    return lambda batch: (torch.randn(batch, *shape),)


def example(
    make: Callable[[Any, float], nn.Module],
    inputs: Callable[[int], tuple[Tensor, ...]],
    graphs: Callable[[], tuple[Any, ...]] = tuple,
) -> Callable[[M], M]:
    """A decorator: ``make(class, dropout)`` returns a small model, ``inputs(batch)`` its inputs."""

    def register(model: M) -> M:
        EXAMPLES[model.__name__.lower()] = Example(
            lambda dropout: make(model, dropout), inputs, graphs
        )
        return model

    return register


def small_cloud(num_points: int = 13, **options: Any) -> Any:
    """A hierarchy of a cloud that is the same on every machine."""
    from ..graphs import hierarchy, knn

    near: dict[str, Any] = {
        "graph": knn(..., 3, self_loops=True, clamp=True),
        "down": knn(..., 3),
        "up": knn(..., 2),
    }
    with torch.device("cpu"):  # a model may be made on another device
        pos = torch.linspace(0, 40, 3 * num_points).sin().view(num_points, 3)
        return hierarchy(pos, **{**near, **options})


def small_grid() -> Any:
    """Levels of 13 cells, the same on every machine."""
    from ..graphs import serialized_hierarchy

    with torch.device("cpu"):
        number = torch.arange(13) * 5 % 27
        grid = torch.stack((number // 9, number // 3 % 3, number % 3), 1)
        return serialized_hierarchy(
            grid.float(), cells=grid, levels=2, patch=4, curves=("z", "hilbert")
        )
