"""The interface of a normalisation: a function of the scores of a target's edges, and its dense
twin.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from ...errors import OptionError
from ...operands import numberless
from ..arguments import made_with

Normalizer = Callable[[Tensor, Tensor, int], Tensor]
"""``normalize(score, target, num_targets)`` of scores (..., E, H) and int64 targets (E,) gives
weights (..., E, H).
"""

DenseNormalizer = Callable[[Tensor, Tensor], Tensor]
"""``dense(score, mask)`` of scores (..., H, T, S) gives weights (..., H, T, S), 0 where ``mask``
(bool) is False.
"""

#: Optional arguments of a normalisation: sources, int64 (E,), and edge features (..., E, F).
OPTIONAL = ("source", "edge_attr")

F = TypeVar("F", bound=Callable[..., Any])


class NamedNormalizer(NamedTuple):
    """A normalisation by its name in a layer."""

    of: Any
    """The function, or the class of modules."""
    dense: Callable[..., Tensor]
    """The published formula on rows, with torch only: a test reads the code."""
    smooth: bool
    """True if the formula has no kink, and its denominators stay away from 0."""


NORMALIZERS: dict[str, NamedNormalizer] = {}


def named(
    name: str, dense: Callable[..., Tensor] | None = None, *, smooth: bool = False
) -> Callable[[F], F]:
    """Register a function, or a class with a method ``dense``, as ``normalize=name``; its formula
    judges it.
    """

    def register(normalize: F) -> F:
        numberless.append(normalize)
        NORMALIZERS[name] = NamedNormalizer(normalize, getattr(normalize, "dense", dense), smooth)  # type: ignore[arg-type]
        return normalize

    return register


def entry_of(normalize: Any) -> NamedNormalizer | None:
    """The entry of a normalisation; ``None`` for a custom one."""
    return next(
        (
            kind
            for kind in NORMALIZERS.values()
            if kind.of is normalize or kind.of is type(normalize)
        ),
        None,
    )


def make_normalizer(normalize: Any, num_heads: int) -> Normalizer | None:
    """The normalisation of a layer, from a name or a function; ``None`` for softmax."""
    if isinstance(normalize, str):
        if normalize == "softmax":
            return None
        if normalize in NORMALIZERS:
            return _built(NORMALIZERS[normalize], num_heads)
    heads = getattr(normalize, "num_heads", num_heads)
    if isinstance(normalize, nn.Module) and heads != num_heads:
        raise OptionError(f"normalize has num_heads={heads}, but the layer num_heads={num_heads}")
    if not callable(normalize):
        raise OptionError(
            f"normalize must be one of softmax, {', '.join(NORMALIZERS)} or a function "
            f"normalize(score, target, num_targets), got {normalize!r}"
        )
    return normalize


def _built(entry: NamedNormalizer, num_heads: int) -> Normalizer:
    """The function of a named normalisation, or a module of its class."""
    if isinstance(entry.of, type):
        return made_with(entry.of, num_heads=num_heads)
    return entry.of


def optional_arguments(normalize: Any) -> tuple[str, ...]:
    """Optional arguments that a normalisation accepts."""
    call = normalize
    if isinstance(normalize, nn.Module):
        call = normalize.forward
    try:
        takes = inspect.signature(call).parameters
    except (TypeError, ValueError):  # softmax, or a function of C
        return ()
    return tuple(name for name in OPTIONAL if name in takes)
