"""What a module hears, measured: one input is moved at a time, and the outputs that change have heard it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError, ShapeError
from ..graph import AttentionGraph
from ..questions.receptive_field import Layers, graphs_of, receptive_field

_DRAWS = 2  # times that each source is moved: what one step hides, such as a ReLU, another shows
_NAMED = 6


@dataclass(frozen=True)
class FoundLeaks:
    """What :func:`find_leaks` found; print it, or ask ``.ok``.

    Args:
        sources: Sources that were moved, of ``num_sources``.
        num_sources: All of them.
        num_targets: Targets whose outputs were compared.
        heard: Pairs (source, target) where moving the source changed the target's output.
        leaks: Those of them that must not be: the first of ``num_leaks``.
        num_leaks: How many.
        silent: Pairs that the graph lets be heard and that were not: the first of ``num_silent``. No mistake in
            itself: an activation may be flat there.
        num_silent: How many.
    """

    sources: int
    num_sources: int
    num_targets: int
    heard: int
    leaks: tuple[tuple[int, int], ...]
    num_leaks: int
    silent: tuple[tuple[int, int], ...]
    num_silent: int

    @property
    def ok(self) -> bool:
        """Whether nothing was heard that must not be."""
        return self.num_leaks == 0

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        tried = f"{self.sources:,} of {self.num_sources:,} sources moved, {self.num_targets:,} targets compared"
        first = f"{self.num_leaks:,} leaks: {_named(self.leaks, self.num_leaks)}" if self.num_leaks else "no leak"
        lines = [f"{first} ({tried})"]
        if self.num_silent:
            lines.append(f"{self.num_silent:,} pairs may be heard and were not: {_named(self.silent, self.num_silent)}")
        return "\n".join(lines)


def _named(pairs: tuple[tuple[int, int], ...], count: int) -> str:
    more = f" and {count - len(pairs):,} more" if count > len(pairs) else ""
    return ", ".join(f"{s} -> {t}" for s, t in pairs) + more


def find_leaks(
    module: Callable[[Tensor], Tensor],
    x: Tensor,
    layers: Layers | None = None,
    *,
    order: Any = None,
    residual: bool = True,
    at_most: int = 256,
    seed: int = 0,
) -> FoundLeaks:
    """Move one input node at a time and see which outputs change, bit for bit: does a module hear what it must not?

    With ``layers`` the outputs that may change are those that the graphs predict; without, those of the same place in
    the order or later. A torch module is asked in eval mode and without gradients, and left as it was. Floats are moved
    by random numbers; integers (token ids) become another id of ``x``.

    Args:
        module: From ``x`` to (..., T, C'), nodes before the width; for token ids from (..., S).
        x: (..., S, C) floats, or (..., S) integers.
        layers: The graphs of the module's layers, first layer first, or one graph.
        order: Without ``layers``: the place of each node, int64 (S,); by default the nodes' own numbers. The output's
            targets are the same nodes.
        residual: With ``layers``: whether every target of a square layer also keeps what it has.
        at_most: Sources that are moved, a seeded choice with the first and the last; each takes two calls.
        seed: Of the choice and of the steps.
    Raises:
        GraphError: If the graphs' nodes are not those of ``x`` and the output, or ``order`` is not (S,), or is given
            together with ``layers``.
        ShapeError: If ``x`` has no nodes, the module gives no tensor of nodes, or ids have no other to become.
    Example:
        >>> from graphattn.graphs import causal
        >>> wrong = lambda x: torch.cumsum(x, -2) + x.roll(-1, -2)  # reads one token ahead
        >>> print(find_leaks(wrong, torch.randn(5, 3), causal(5)))
        4 leaks: 1 -> 0, 2 -> 1, 3 -> 2, 4 -> 3 (5 of 5 sources moved, 5 targets compared)
    """
    axis = -2 if x.is_floating_point() else -1
    if x.ndim < -axis:
        raise ShapeError(f"x must be (..., S, C) floats or (..., S) integers, got {list(x.shape)} of {x.dtype}")
    S = x.shape[axis]
    generator = torch.Generator().manual_seed(seed)
    sources = _chosen(S, at_most, generator)
    was_training = isinstance(module, torch.nn.Module) and [m for m in module.modules() if m.training]
    try:
        if isinstance(module, torch.nn.Module):
            module.eval()
        with torch.no_grad():
            heard = _heard(module, x, axis, sources, generator)
    finally:
        for part in was_training or ():
            part.training = True
    allowed = _allowed(layers, order, residual, S, heard.shape[1], sources)
    leak, silent = heard & ~allowed, ~heard & allowed
    if layers is None:
        silent = torch.zeros_like(silent)  # an order allows, and promises nothing
    return FoundLeaks(
        len(sources), S, heard.shape[1], int(heard.sum()), *_pairs(leak, sources), *_pairs(silent, sources)
    )


def _chosen(size: int, at_most: int, generator: torch.Generator) -> Tensor:
    if size <= max(2, at_most):
        return torch.arange(size)
    ends = torch.tensor([0, size - 1])
    return torch.cat((ends, 1 + torch.randperm(size - 2, generator=generator)[: at_most - 2])).sort().values


def _heard(
    module: Callable[[Tensor], Tensor], x: Tensor, axis: int, sources: Tensor, generator: torch.Generator
) -> Tensor:
    """bool (moved sources, T): whose output changes."""
    output = _output(module, x)
    heard = torch.zeros(len(sources), output.shape[-2], dtype=torch.bool)
    for row, source in enumerate(sources.tolist()):
        for _ in range(_DRAWS):
            moved = x.clone()
            here = moved.select(axis, source)
            here.copy_(_moved(here, x, generator))
            found = _output(module, moved)
            same = (found == output) | (found.isnan() & output.isnan())
            heard[row] |= ~same.movedim(-2, 0).flatten(1).all(1).cpu()
    return heard


def _output(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    found = module(x)
    if not isinstance(found, Tensor) or found.ndim < 2:
        kind = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ShapeError(f"module must give a tensor (..., T, C), got {kind}; wrap it: lambda x: module(x)[0]")
    return found


def _moved(here: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    if x.is_floating_point():
        step = torch.randn(here.shape, generator=generator, dtype=torch.float64)
        return here + step.to(here)
    ids = torch.unique(x)
    if ids.numel() < 2:
        raise ShapeError("x holds one id alone; find_leaks needs another to put in its place")
    place = torch.searchsorted(ids, here.contiguous())
    by = torch.randint(1, ids.numel(), here.shape, generator=generator).to(here.device)
    return ids[(place + by) % ids.numel()]


def _allowed(
    layers: Layers | None, order: Any, residual: bool, num_sources: int, num_targets: int, sources: Tensor
) -> Tensor:
    """bool (moved sources, T): whose output may change."""
    if layers is None:
        place = torch.arange(num_sources) if order is None else torch.as_tensor(order).cpu()
        if place.shape != (num_sources,) or num_targets != num_sources:
            raise GraphError(
                f"order must hold a place for each of {num_sources} sources, which are the targets, too; got "
                f"{list(place.shape)} and {num_targets} targets. Sources and targets of their own need layers="
            )
        return place[sources][:, None] <= place[None, :]
    if order is not None:
        raise GraphError("find_leaks takes layers, whose graphs say what may be heard, or order, not both")
    graphs = graphs_of(layers, residual)
    sizes = graphs[0].num_sources, graphs[-1].num_targets
    if sizes != (num_sources, num_targets):
        raise GraphError(
            f"layers lead from {sizes[0]} sources to {sizes[1]} targets, and the module from {num_sources} to "
            f"{num_targets}"
        )
    # Turned round: what the moved sources reach is their receptive field in the reversed layers.
    back: list[AttentionGraph] = [graph.reverse() for graph in reversed(graphs)]
    return receptive_field(back, sources).graphs[-1].mask()


def _pairs(found: Tensor, sources: Tensor) -> tuple[tuple[tuple[int, int], ...], int]:
    row, target = torch.nonzero(found, as_tuple=True)
    return tuple(zip(sources[row[:_NAMED]].tolist(), target[:_NAMED].tolist(), strict=True)), row.numel()
