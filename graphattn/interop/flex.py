"""FlexAttention: its mask functions. ``q_idx`` is the target, ``kv_idx`` the source."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.listed import check_size
from ..graph.rules import Predicate
from ._mask_mod import pair_test
from .masks import _no_copies
from .rule import OnDevice, _sample, from_rule

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_BATCHES, _HEADS = (0, 1, 2, 3, 7), (0, 1, 2, 3, 5, 7, 8, 15, 31, 63)
_PROBED = 17


@dataclass(frozen=True)
class OfPair:
    """A ``mask_mod`` without its batch and head."""

    mask_mod: MaskMod

    def __call__(self, target: Tensor, source: Tensor) -> Tensor:
        zero = torch.zeros((), dtype=torch.int64, device=target.device)
        return self.mask_mod(zero, zero, target, source)


def from_mask_mod(
    mask_mod: MaskMod,
    num_targets: int,
    num_sources: int | None = None,
    *,
    name: str | None = None,
    device: torch.device | str = "cpu",
) -> AttentionGraph:
    """A graph, as a rule, from a FlexAttention ``mask_mod(b, h, q_idx, kv_idx)`` that is the same for all b and h.

    It is called with index tensors that broadcast, as in :func:`from_rule`.

    Args:
        mask_mod: The function.
        num_targets: T, FlexAttention's ``Q_LEN``.
        num_sources: S, its ``KV_LEN``; T by default.
        name: What ``repr`` shows; the function's own name by default.
        device: Where the tensors that ``mask_mod`` reads are.
    Raises:
        GraphError: As :func:`from_rule`, and if some pairs tried are an edge for one batch or head and not for another:
            one graph serves them all. Name the one that is meant: ``lambda b, h, q, kv: mask_mod(b0, h0, q, kv)``.
    Example:
        >>> from_mask_mod(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, 3)
        AttentionGraph(mask_mod: 3 nodes, 6 edges, density 0.667, rule)
    """
    if not callable(mask_mod):
        raise GraphError(f"mask_mod must be callable as mask_mod(b, h, q_idx, kv_idx), got a {type(mask_mod).__name__}")
    T = check_size(num_targets, "num_targets")
    S = T if num_sources is None else check_size(num_sources, "num_sources")
    given = getattr(mask_mod, "__name__", "mask_mod")
    name = name or ("mask_mod" if given == "<lambda>" else given)
    graph = from_rule(OfPair(mask_mod), T, S, name=name, device=device)
    check_same_for_all(mask_mod, T, S, graph.device)
    return graph


def check_same_for_all(mask_mod: MaskMod, num_targets: int, num_sources: int, device: torch.device) -> None:
    t, s = _sample(num_targets, _PROBED).to(device), _sample(num_sources, _PROBED).to(device)
    t, s = t.repeat_interleave(s.numel()), s.repeat(t.numel())
    if t.numel() == 0:
        return
    zero = torch.zeros((), dtype=torch.int64, device=device)
    expected = mask_mod(zero, zero, t, s)
    for letter, values in (("b", _BATCHES), ("h", _HEADS)):
        for value in values:
            index = torch.full((), value, device=device)
            try:
                answer = mask_mod(*((index, zero) if letter == "b" else (zero, index)), t, s)
            except Exception as error:
                raise GraphError(_depends(letter, f"it fails for {letter} = {value}: {error}")) from error
            bad = torch.nonzero(torch.as_tensor(answer != expected).expand(t.shape)).flatten()
            if bad.numel():
                pair = f"(q_idx={int(t[bad[0]])}, kv_idx={int(s[bad[0]])})"
                raise GraphError(_depends(letter, f"{pair} differs between {letter} = 0 and {letter} = {value}"))


def _depends(letter: str, how: str) -> str:
    return (
        f"mask_mod must not depend on {letter}, since one graph serves all batches and heads, but {how}. "
        "Choose one: lambda b, h, q, kv: mask_mod(b0, h0, q, kv), with b0 and h0 as tensors"
    )


def to_mask_mod(graph: AttentionGraph) -> MaskMod:
    """A ``mask_mod(b, h, q_idx, kv_idx)`` for FlexAttention, of element-wise operations and look-ups only.

    Rules give their closed form. Listed edges give a table of tiles and a bitmap for each tile that has some edges and
    lacks some, so neighbours that are near each other save memory. The tensors are on ``graph.device``.

    Raises:
        GraphError: If edges are repeated, or the look-up tables would take more than 4 GiB.
    Example:
        >>> from graphattn.interop import from_mask
        >>> mask_mod = to_mask_mod(from_mask([[True, False], [True, True]]))
        >>> mask_mod(0, 0, torch.tensor([0, 1]), torch.tensor([1, 1]))
        tensor([False,  True])
    """
    _no_copies(graph, "a mask_mod", "add the logarithm of the number of copies in a score_mod")
    function = graph.edges.function if isinstance(graph.edges, Predicate) else None
    function = function.function if isinstance(function, OnDevice) else function
    if isinstance(function, OfPair):
        return function.mask_mod
    test = pair_test(graph.edges, graph.device)

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return test(q_idx, kv_idx)

    return mask_mod
