"""A function of (target, source) as a graph that stores no edges."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from ..arguments import device as checked_device
from ..arguments import whole
from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.edges import Edges
from ..graph.forms import of_function

_PROBED = 13  # targets and, two fewer, sources: a square table would hide a transposed answer
_ALONE = 24  # of their pairs, evenly spaced, that are also tested one by one

_ASKED_AT_ONCE = 1 << 18
_TORCH_FUNC = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
PairRule = Callable[[Tensor, Tensor], Tensor]  # (target, source) -> bool


def from_rule(
    function: PairRule,
    num_targets: int,
    num_sources: int | None = None,
    *,
    name: str | None = None,
    device: torch.device | str = "cpu",
) -> AttentionGraph:
    r"""A graph from a function of (target, source) that is True if ``source -> target`` is an edge.

    .. math:: \mathcal{N}(t) = \{ s : f(t, s) \}

    The function gets int64 tensors that broadcast, (T, 1) and (1, S) among others, and must treat
    each pair independently: write ``& | ~`` and ``torch.where``, not ``and or not if``. A few pairs
    are tested at once, together and one by one. Counting the edges calls it on all T x S pairs, a
    chunk at a time, which takes seconds for 8,192 x 8,192; the closed forms of
    ``graphattn.graphs`` avoid that. The function is called again whenever edges are needed: a
    tensor that it reads must not change afterwards.

    Args:
        function: ``function(target, source)``, bool in their common shape.
        num_targets: T.
        num_sources: S; T by default, for one set of nodes.
        name: The name that ``repr`` shows; that of the function by default.
        device: The device of the graph's index tensors, and of the tensors that the function reads.
    Raises:
        GraphError: If the function fails, is not boolean, or depends on the other pairs of a call;
            the message gives a pair.
    Example:
        >>> print(from_rule(lambda t, s: s <= t, 3))
        AttentionGraph(rule: 3 nodes, 6 edges, density 0.667, rule)
        █ · ·
        █ █ ·
        █ █ █
    """
    device = checked_device(device, numbers=True)
    T = whole(num_targets, "num_targets", 0, GraphError)
    S = T
    if num_sources is not None:
        S = whole(num_sources, "num_sources", 0, GraphError)
    edges = of_function(T, S, on_device(function, device), function)
    _probe(edges, function, device)
    if not name:
        name = name_of(function, "rule")
    return AttentionGraph(edges, name, device)


def name_of(function: Callable[..., Any], default: str) -> str:
    """The name of a function, or the default for a lambda or an object without one."""
    name: str = getattr(function, "__name__", default)
    if name == "<lambda>":
        return default
    return name


def trusted_rule(
    function: PairRule, num_targets: int, num_sources: int, name: str = "rule"
) -> AttentionGraph:
    """:func:`from_rule` for a function of the library, which needs no test on some pairs."""
    return AttentionGraph(of_function(num_targets, num_sources, function), name)


def on_device(function: PairRule, device: torch.device) -> PairRule:
    """A function of tensors of ``device`` as a function of tensors of any device."""
    if device.type == "cpu":
        return function

    def call(target: Tensor, source: Tensor) -> Tensor:
        inside = function(target.to(device), source.to(device))
        if isinstance(inside, Tensor):
            return inside.to(target.device)
        return inside

    return call


def sample(size: int, most: int) -> Tensor:
    """Up to ``most`` distinct numbers of ``range(size)``, both ends included."""
    if size <= most:
        return torch.arange(size)
    return torch.linspace(0, size - 1, most, dtype=torch.float64).long()


def _example(function: PairRule, t: Tensor, s: Tensor) -> str:
    pair = f"(t={int(t)}, s={int(s)})"
    if _works_alone(function, t, s):
        return (
            f"It does work for {pair} as two 0-d tensors, as FlexAttention calls its functions: "
            "from_mask_mod(lambda b, h, t, s: function(t, s), ...) calls it so"
        )
    try:
        return f"For example {pair} gives {function(t, s)!r}"
    except Exception as error:
        return f"It fails for the pair {pair} alone, too: {error}"


def _works_alone(function: PairRule, t: Tensor, s: Tensor) -> bool:
    try:
        answer = by_pair(function, t, s)
        return answer.dtype == torch.bool and answer.shape == t.shape
    except Exception:
        return False


def _probe(edges: Edges, function: PairRule, device: torch.device) -> None:
    """Test some pairs in several shapes; a function of the pair alone gives equal answers."""
    t = sample(edges.num_targets, _PROBED).to(device)
    s = sample(edges.num_sources, _PROBED - 2).to(device)
    if 0 in (t.numel(), s.numel()):
        return
    try:
        table = edges.contains(t[:, None], s[None, :])
    except GraphError as error:
        raise GraphError(f"{error}. {_example(function, t[-1:], s[:1])}") from error
    alone = list(table.flatten().split(1))
    step = max(1, len(alone) // _ALONE)
    while math.gcd(step, s.numel()) > 1:  # else it would visit some columns only
        step += 1
    for place in range(0, len(alone), step):
        i, j = divmod(place, s.numel())
        alone[place] = edges.contains(t[i : i + 1], s[j : j + 1])
    backwards = edges.contains(t.flip(0)[:, None], s.flip(0)[None, :])
    flat = edges.contains(t.repeat_interleave(s.numel()), s.repeat(t.numel()))
    other_ways = {
        "evaluated alone": torch.cat(alone).view_as(table),
        "evaluated in reverse order": backwards.flip(0, 1),
        "evaluated as a flat list": flat.view_as(table),
    }
    for way, answer in other_ways.items():
        bad = torch.nonzero(answer != table)
        if bad.numel():
            i, j = bad[0].tolist()
            raise GraphError(
                f"the rule must treat each pair independently, got {bool(table[i, j])} for "
                f"(t={int(t[i])}, s={int(s[j])}) in a table of pairs and {bool(answer[i, j])} "
                f"{way}; use only the values of t and s, no shapes, positions, means or random "
                "numbers"
            )


_AXIS = {True: 0, False: None}  # an axis that torch.vmap maps over, or none


def by_pair(function: PairRule, target: Tensor, source: Tensor) -> Tensor:
    """``function`` of every pair of two index tensors that broadcast, under ``torch.vmap``.

    The function gets each pair as 0-d tensors.

    Example:
        >>> ends = torch.tensor([[0, 2], [1, 3]])  # the first and the last target of each source
        >>> by_pair(lambda t, s: (ends[s][0] <= t) & (t <= ends[s][1]), torch.arange(3)[:, None], torch.arange(2))
        tensor([[ True, False],
                [ True,  True],
                [ True,  True]])
    """
    shape = torch.broadcast_tensors(target, source)[0].shape
    if 0 in shape:
        return torch.zeros(shape, dtype=torch.bool, device=target.device)
    target, source = (x.reshape((1,) * (len(shape) - x.dim()) + x.shape) for x in (target, source))
    # axes of which the targets, or the sources, have all places and not one that broadcasts
    of_target = [n == length for n, length in zip(target.shape, shape, strict=True)]
    of_source = [n == length for n, length in zip(source.shape, shape, strict=True)]
    target = target.reshape([*compress(shape, of_target)])
    source = source.reshape([*compress(shape, of_source)])
    for depth in reversed(range(len(shape))):
        rows = None
        if depth == 0:
            rows = max(1, _ASKED_AT_ONCE // max(1, shape[1:].numel()))
        dims = (_AXIS[of_target[depth]], _AXIS[of_source[depth]])
        function = torch.vmap(function, dims, chunk_size=rows)
    if shape and torch._C._dispatch_tls_is_dispatch_key_excluded(_TORCH_FUNC):
        # ask() in another thread, where torch.func is not active, as graphs need it
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: function(target, source)).result()
    return function(target, source)
