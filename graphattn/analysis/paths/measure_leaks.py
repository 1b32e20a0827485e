"""Leaks of a module, measured: outputs that change when one input is moved depend on it."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_finite, check_flags, check_shape, function, tensor, whole
from ...errors import GraphAttnError, GraphError, OptionError, ShapeError
from ...graph import AttentionGraph
from ...printed import Printed
from .receptive_field import Layers, graphs_of, receptive_field

_DRAWS = 2  # times that each source is moved: what one step hides, such as a ReLU, another shows
_NAMED = 6


@dataclass(frozen=True, repr=False)
class FoundLeaks(Printed):
    """Leaks found by :func:`measure_leaks`; print it, or read ``.ok``.

    Args:
        sources: Sources that were moved, of ``num_sources``.
        num_sources: All of them.
        num_targets: Targets whose outputs were compared.
        num_dependent: Pairs (source, target) where moving the source changed the target's output.
        leaks: Those of them that must not be: the first of ``num_leaks``.
        num_leaks: How many.
        silent: Pairs that the graph allows and whose target did not change: the first of
            ``num_silent``. No mistake in itself: an activation may be flat there.
        num_silent: How many.
        random: Whether the module's outputs depend on torch's random state; its dropout may then
            hide a leak.
    """

    sources: int
    num_sources: int
    num_targets: int
    num_dependent: int
    leaks: tuple[tuple[int, int], ...]
    num_leaks: int
    silent: tuple[tuple[int, int], ...]
    num_silent: int
    random: bool = False

    @property
    def ok(self) -> bool:
        """True if no output depends on what it must not."""
        return self.num_leaks == 0

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {"ok": self.ok, **asdict(self)}

    def in_full(self) -> str:
        tried = (
            f"{self.sources:,} of {self.num_sources:,} sources moved, {self.num_targets:,} "
            "targets compared"
        )
        if self.num_leaks:
            first = f"{self.num_leaks:,} leaks: {_named(self.leaks, self.num_leaks)}"
        else:
            first = "no leak"
        lines = [f"{first} ({tried})"]
        if self.num_silent:
            lines.append(
                f"{self.num_silent:,} pairs may depend and did not: "
                f"{_named(self.silent, self.num_silent)}"
            )
        if self.random:
            lines.append(
                "the module is random (dropout?), which may hide a leak: call .eval() on it and "
                "ask again"
            )
        return "\n".join(lines)


def _named(pairs: tuple[tuple[int, int], ...], count: int) -> str:
    if count > len(pairs):
        more = f" and {count - len(pairs):,} more"
    else:
        more = ""
    return ", ".join(f"{s} -> {t}" for s, t in pairs) + more


def measure_leaks(
    module: Callable[[Tensor], Tensor],
    x: Tensor,
    layers: Layers | None = None,
    *,
    residual: bool = True,
    at_most: int = 256,
    seed: int = 0,
) -> FoundLeaks:
    """Move one input node at a time and compare the outputs bit for bit with the graph's answer.

    With ``layers`` the outputs that may change are those that the graphs predict; without, those of
    the same node or later ones. Floats are moved by random numbers; integers (token ids) become
    another id of ``x``.

    A torch module runs in eval mode; modules inside a function keep their mode. Nothing has
    gradients, torch's random state is the same before every call, so that dropout is no leak, and
    afterwards that state, modes and buffers (running statistics) are as they were: those of a
    module, and of modules that a function refers to by name. Dropout may hide a leak, and batch
    statistics in training mode are one: every output depends on every input through them.

    Args:
        module: From ``x`` to (..., T, C'), nodes before the width; for token ids from (..., S).
        x: (..., S, C) floats, or (..., S) integers.
        layers: The graphs of the module's layers, first layer first, or one graph.
        residual: With ``layers``: whether every target of a square layer also keeps what it has (a
            residual connection). ``True`` by default, as the question is about a model, whose
            blocks have them; ``receptive_field`` and ``path_counts``, about the graphs, have
            ``False``. A leak that nothing but such a connection would allow is not seen in a module
            without them: give ``False`` for it.
        at_most: Sources that are moved, >= 1: a seeded choice with the first and the last; each
            takes two calls.
        seed: Of the choice, of the steps and of torch's random state before each call.
    Raises:
        GraphError: If the graphs' nodes are not those of ``x`` and the output, or these differ
            without ``layers``.
        GraphAttnError: If two calls on the same ``x`` from the same random state differ: the module
            is stateful, or random by other means than torch's.
        ShapeError: If ``x`` has no nodes or is not finite, the module gives no tensor of nodes, or
            NaN, or ids have no other to become.
        OptionError: If ``at_most`` is below 1.
    Example:
        >>> from graphattn.graphs import causal
        >>> wrong = lambda x: torch.cumsum(x, -2) + x.roll(-1, -2)  # reads one token ahead
        >>> print(measure_leaks(wrong, torch.randn(5, 3), causal(5)))
        4 leaks: 1 -> 0, 2 -> 1, 3 -> 2, 4 -> 3 (5 of 5 sources moved, 5 targets compared)
    """
    check_flags(residual=residual)
    if (
        isinstance(module, torch.nn.Module)
        and "graph" in inspect.signature(module.forward).parameters
    ):
        raise OptionError(
            "module is called as module(x); bring its graph along: lambda x: module(x, graph)"
        )
    function(module, "module", "x")
    tensor(x, "x", "(..., S, C) of floats or (..., S) of integers", ShapeError)
    axis = -1
    if x.is_floating_point():
        axis = -2
        check_shape(x, "x", (..., "S", "C"))
        check_finite(x, "x", ", where no step can be seen")
    at_most = whole(at_most, "at_most", 1)
    S = x.shape[axis]
    generator = torch.Generator().manual_seed(seed)
    sources = _chosen(S, at_most, generator)
    with left_as_it_was(module), torch.no_grad():
        if isinstance(module, torch.nn.Module):
            module.eval()
        changed, random = _changed(_SeededModule(module, seed), x, axis, sources, generator)
    allowed = _allowed(layers, residual, S, changed.shape[1], sources)
    leak = changed & ~allowed
    silent = ~changed & allowed
    if layers is None:
        silent = torch.zeros_like(silent)  # the order of nodes requires nothing
    return FoundLeaks(
        len(sources),
        S,
        changed.shape[1],
        int(changed.sum()),
        *_pairs(leak, sources),
        *_pairs(silent, sources),
        random,
    )


def _chosen(size: int, at_most: int, generator: torch.Generator) -> Tensor:
    if size <= at_most:
        return torch.arange(size)
    ends = torch.tensor([0, size - 1])[:at_most]
    return (
        torch.cat((ends, 1 + torch.randperm(size - 2, generator=generator)[: max(0, at_most - 2)]))
        .sort()
        .values
    )


def _changed(
    model: "_SeededModule", x: Tensor, axis: int, sources: Tensor, generator: torch.Generator
) -> tuple[Tensor, bool]:
    """bool (moved sources, T), whose output changes; and whether the module is random."""
    # a module may write into what it is given
    outputs = [model(x.clone(), draw).clone() for draw in range(_DRAWS)]
    if bool(outputs[0].isnan().any()):
        raise ShapeError("the module's output holds NaN, in which no change can be seen")
    model.check(x.clone(), outputs[0])
    changed = torch.zeros(len(sources), outputs[0].shape[-2], dtype=torch.bool)
    for row, source in enumerate(sources.tolist()):
        for draw, output in enumerate(outputs):
            moved = x.clone()
            here = moved.select(axis, source)
            here.copy_(_moved(here, x, generator))
            unmoved = _same(model(moved, draw), output)
            changed[row] |= ~unmoved.movedim(-2, 0).flatten(1).all(1).cpu()
    model.check(x.clone(), outputs[0])
    return changed, any(not _same(output, outputs[0]).all() for output in outputs)


def _moved(here: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    if x.is_floating_point():
        step = torch.randn(here.shape, generator=generator, dtype=torch.float64).to(here.device)
        share = 0.1 + 0.8 * torch.rand(here.shape, generator=generator, dtype=torch.float64).to(
            here.device
        )
        # beside a large number a step of 1 is lost to rounding: there, a share of it
        values = here.double()
        return torch.where(values.abs() > 1, values * (1 - share), values + step).to(here)
    ids = torch.unique(x)
    if ids.numel() < 2:
        raise ShapeError("x holds one id alone; measure_leaks needs another to put in its place")
    place = torch.searchsorted(ids, here.contiguous())
    by = torch.randint(1, ids.numel(), here.shape, generator=generator).to(here.device)
    return ids[(place + by) % ids.numel()]


def _allowed(
    layers: Layers | None, residual: bool, num_sources: int, num_targets: int, sources: Tensor
) -> Tensor:
    """bool (moved sources, T): whose output may change."""
    if layers is None:
        if num_targets != num_sources:
            raise GraphError(
                f"{num_sources} sources and {num_targets} targets are other nodes: pass layers="
            )
        return sources[:, None] <= torch.arange(num_targets)
    graphs = graphs_of(layers, residual)
    sizes = graphs[0].num_sources, graphs[-1].num_targets
    if sizes != (num_sources, num_targets):
        raise GraphError(
            f"layers lead from {sizes[0]} sources to {sizes[1]} targets, and the module from "
            f"{num_sources} to {num_targets}"
        )
    # Turned round: what the moved sources reach is their receptive field in the reversed layers.
    back: list[AttentionGraph] = [graph.reverse() for graph in reversed(graphs)]
    return receptive_field(back, sources).graphs[-1].mask()


def _pairs(pairs: Tensor, sources: Tensor) -> tuple[tuple[tuple[int, int], ...], int]:
    row, target = torch.nonzero(pairs, as_tuple=True)
    return tuple(
        zip(sources[row[:_NAMED]].tolist(), target[:_NAMED].tolist(), strict=True)
    ), row.numel()


# --- calls from the same random state each time; what the module holds is put back afterwards


@contextmanager
def left_as_it_was(module: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Puts back torch's random state, and the modes and buffers of the modules."""
    parts = [part for root in _modules(module) for part in root.modules()]
    modes = [part.training for part in parts]
    buffers = [dict(part._buffers) for part in parts]
    copies = [
        (buffer, buffer.clone())
        for buffers_of_part in buffers
        for buffer in buffers_of_part.values()
        if buffer is not None
    ]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for part, mode, before in zip(parts, modes, buffers, strict=True):
            part.training = mode
            part._buffers.update(before)
        for buffer, copy in copies:
            if not _same(buffer, copy).all():
                buffer.copy_(copy)


def _modules(function: Any) -> list[torch.nn.Module]:
    """The modules that a function is, is bound to, or refers to by name."""
    function = inspect.unwrap(function)
    inside = [function, getattr(function, "__self__", None)]
    if isinstance(function, partial):
        return [
            *_modules(function.func),
            *(one for part in function.args for one in _modules(part)),
        ]
    if inspect.isfunction(function):
        closure = inspect.getclosurevars(function)
        inside += [*closure.nonlocals.values(), *closure.globals.values()]
    return [one for one in inside if isinstance(one, torch.nn.Module)]


class _SeededModule:
    """Calls a module from the same random state each time."""

    def __init__(self, module: Callable[[Tensor], Tensor], seed: int) -> None:
        self.module = module
        self.seed = seed

    def __call__(self, x: Tensor, draw: int) -> Tensor:
        torch.manual_seed(self.seed + draw)
        output = self.module(x)
        shape = (..., "T", "C")
        check_shape(output, "the result of module", shape, "wrap it: lambda x: module(x)[0]")
        return output

    def check(self, x: Tensor, expected: Tensor) -> None:
        """Raise a GraphAttnError unless the answer to the same ``x`` is the same."""
        again = self(x, 0)
        if again.shape != expected.shape or not _same(again, expected).all():
            raise GraphAttnError(
                "module gives two answers to the same x from the same random state of torch: it is "
                "random by other means or stateful (a cache, a counter), and what it depends on "
                "cannot be measured; call .eval() on it, or pass a deterministic function"
            )


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Mask of the elements that are equal, or both NaN."""
    return (a == b) | (a.isnan() & b.isnan())
