"""Scores and normalisations by the way they run: products, softmax, rows of scores, or edges.

Callers name them, or pass modules of the layers, which are a room further down and register their
classes here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

Weigh = Callable[[Tensor, Tensor], Tensor]
"""(scores (..., T, S), mask of edges) -> weights, which are 0 where there is no edge."""

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=type)


def _sigmoid(module: Any, score: Tensor, mask: Tensor) -> Tensor:
    if module.bias is None:
        level = mask.sum(-1, keepdim=True).to(score.dtype).clamp(1.0).log()
    else:
        level = -module.bias
    return torch.sigmoid(score - level).masked_fill(~mask, 0.0)


def _none(score: Tensor, mask: Tensor) -> Tensor:
    return score.masked_fill(~mask, 0.0)


def _sum(score: Tensor, mask: Tensor) -> Tensor:
    weight = _none(score, mask)
    total = weight.sum(-1, keepdim=True)
    return weight / torch.where(total == 0, 1.0, total)


#: Functions of rows by the layer's names of normalisations; a module is passed first.
ROWS: dict[str, Callable[..., Tensor]] = {"sigmoid": _sigmoid, "none": _none, "sum": _sum}
WORK = 0.55  # measured: share of the work of a product whose softmax is written out
_registry: list[tuple[Any, Callable[..., Tensor]]] = []

#: Scores that are products, by the layer's names.
PRODUCTS = ("scaled_dot", "dot", "cosine", "general")
#: All names by argument; classes of callers are added.
NAMES = {
    "score": [*PRODUCTS, "additive", "gat", "mlp", "gaussian", "subtraction"],
    "normalize": ["softmax", "sink", *ROWS, "hard", "sparsemax"],
}
_softmaxes: list[type] = []


def softmax_and_share(module: S) -> S:
    """Register a class of modules that multiply softmax by a share for each target."""
    _softmaxes.append(module)
    return module


def is_softmax(normalize: Any) -> bool:
    """True if a normalisation, or its name, runs as softmax does."""
    return normalize in (None, "softmax", "sink") or type(normalize) in _softmaxes


def is_product(score: Any) -> bool:
    """True if a score, or its name, runs as a product."""
    if score is None:
        return True
    name = score
    if not isinstance(score, str):
        name = vars(type(score)).get("alias")
    return name in PRODUCTS


def on_rows(name: str) -> Callable[[F], F]:
    """Register a function or a class of modules as the normalisation of a name in ROWS."""

    def register(normalize: F) -> F:
        _registry.append((normalize, ROWS[name]))
        return normalize

    return register


def of_rows(normalize: Any) -> Weigh | None:
    """The function of rows of a normalisation; ``None`` if there is none.

    A subclass, or a module with hooks, may compute other weights, and runs on edges.
    """
    if normalize is None:
        return None
    for registered, weigh in _registry:
        if registered is normalize:
            return weigh
        if registered is type(normalize) and not is_changed(normalize):
            return partial(weigh, normalize)
    return None


def sigmoid_of(normalize: Any) -> Any:
    """A module whose weights are sigmoids, or ``None``."""
    weigh = of_rows(normalize)
    if isinstance(weigh, partial) and weigh.func is _sigmoid:
        return normalize
    return None


def is_changed(module: nn.Module) -> bool:
    """True if hooks or overrides come between a call of the module and the forward of its class."""
    if _has_any_global_hook():
        return True
    if module._forward_hooks or module._forward_pre_hooks:
        return True
    if module._backward_hooks or module._backward_pre_hooks:
        return True
    return "forward" in module.__dict__
