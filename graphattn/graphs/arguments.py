"""Helpers of builders: checks of whole numbers, and names of graphs that show their call."""

import inspect
from functools import partial

from torch import Tensor

from .. import arguments
from ..arguments import check_shape
from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.deferred.expression import builders
from ..graph.modes import lru_cache

_SHOWN = 4


def whole(
    value: object,
    argument: str,
    least: int | None = 0,
    *,
    below: int = 2**63,
    of: str = "",
) -> int:
    """``value`` as an int in [least, below); ``of`` follows ``below`` in the error."""
    return arguments.whole(value, argument, least, GraphError, below=below, of=of)


flag = partial(arguments.flag, error=GraphError)
one_of = partial(arguments.one_of, error=GraphError)
probability = partial(arguments.probability, error=GraphError)
number = partial(arguments.number, error=GraphError)
tensor = partial(arguments.tensor, error=GraphError)


def integers(values: object, argument: str) -> Tensor:
    """``values`` as int64 (n,); the device stays."""
    result = arguments.integers(values, argument, "(n,)", GraphError)
    check_shape(result, argument, ("n",), error=GraphError)
    return result


def call(builder: str, *arguments: object, **keywords: object) -> str:
    """The name of a graph: the call that makes it, without keywords equal to the builder's default.

    Example:
        >>> call("causal", 3, 7, align="start")
        "causal(3, 7, align='start')"
    """
    defaults = _defaults(builder)
    shown = [_short(value) for value in arguments]
    shown += [
        f"{name}={_short(x)}" for name, x in keywords.items() if not _all_are(x, defaults[name])
    ]
    return f"{builder}({', '.join(shown)})"


def seeded(seed: int, *sizes: object) -> tuple[object, ...]:
    """The positional arguments of :func:`call`, with the seed at their end unless it is 0."""
    if seed == 0:
        return sizes
    return (*sizes, seed)


@lru_cache(None)
def _defaults(builder: str) -> dict[str, object]:
    parameters = inspect.signature(builders()[builder]).parameters
    return {name: parameter.default for name, parameter in parameters.items()}


def _all_are(value: object, default: object) -> bool:
    """True for a default value, and for a tuple of it for each axis."""
    if isinstance(value, Tensor):
        return False
    if isinstance(value, tuple) and not isinstance(default, tuple):
        return value != () and all(side == default for side in value)
    return value == default


def _short(value: object) -> str:
    if isinstance(value, AttentionGraph):
        return value.name
    if isinstance(value, Tensor):
        if value.dim() == 1:
            value = value[: _SHOWN + 1].tolist()
        else:
            return f"<{tuple(value.shape)}>"
    if isinstance(value, list | tuple) and len(value) > _SHOWN:
        first = ", ".join(map(repr, value[:_SHOWN]))
        if isinstance(value, list):
            return f"[{first}, ...]"
        return f"({first}, ...)"
    return repr(value)


def axes(size: object) -> tuple[int, ...]:
    """A grid's lengths, row-major; an int is a grid of one axis."""
    if isinstance(size, (tuple, list)):
        lengths = tuple(size)
    else:
        lengths = (size,)
    if not lengths:
        raise GraphError("size must name at least one axis, such as (height, width), got ()")
    lengths = tuple(whole(length, "size") for length in lengths)
    return lengths


def per_axis(
    value: object,
    num_axes: int,
    argument: str,
    least: int | None = 0,
) -> tuple[int, ...]:
    """One whole number for every axis of a grid; a single number is for all of them."""
    sides = arguments.for_each(value, argument, num_axes, "axis of size", GraphError)
    return tuple(whole(side, argument, least) for side in sides)
