"""Mutants whose values come from the given mask: windows, boundaries, global tokens."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import SIGNS, Expression
from ...graph.deferred.pattern import SIZES
from .mutant import REFUSED, REMOTE, Mutant, arguments, parts, quoted, with_argument
from .mutants import Mutants
from .of_calls import where
from .simple import simple_expression

_NODES = 8  # of a tree whose parents are changed
_READ = 3  # rank of a value that nothing but the mask suggests
_EVALUATED = 48  # graphs that are made to find a number


def of_mask(
    mutants: Mutants, mask: AttentionGraph, wrong: tuple[AttentionGraph, ...], affordable: int
) -> Iterator[Mutant]:
    """Mistakes that would give this mask, if anything about a part of the expression does.

    Args:
        mutants: Those of what was meant.
        mask: The graph of the mask.
        wrong: The edges in which they differ, listed: too many, missing.
        affordable: Graphs that may be made and counted to find numbers.
    """
    for part in parts(mutants.root):
        if not isinstance(part, Expression) or part.function in SIGNS:
            continue
        values = arguments(part)
        if part.function == "documents":
            yield from _of_documents(part, values, wrong)
        if part.function in ("ancestors", "siblings", "tree"):
            yield from _of_trees(part, values["parent"].cpu(), wrong)
        if part.function == "global_tokens":
            tokens = tuple(torch.nonzero(mask.in_degree == mask.num_sources).flatten().tolist())
            if tokens:
                yield _mutant(part, "tokens", tokens, where("tokens", tokens, values["tokens"]))
        if not mutants.grow(part).is_rule:
            continue
        for name, value in values.items():
            is_number = isinstance(value, int) and not isinstance(value, bool) and name not in SIZES
            if is_number and name not in ("num_targets", "seed") and affordable >= _EVALUATED:
                affordable -= _EVALUATED
                number = _number(mutants, part, name, value, mask)
                if number is not None:
                    yield _mutant(part, name, number, where(name, number, value))
    simple = simple_expression(mask)
    if simple is not None:
        yield Mutant(
            f"another graph: the mask is that of {simple}", mutants.root, simple, rank=2 * REMOTE
        )


def _mutant(part: Expression, name: str, value: Any, text: str) -> Mutant:
    return Mutant(f"{text}, in {quoted(part)}", part, with_argument(part, name, value), rank=_READ)


def _number(
    mutants: Mutants, part: Expression, name: str, value: int, mask: AttentionGraph
) -> int | None:
    """The argument that gives the graph the mask's number of edges, if that is monotone."""

    def count(new: int) -> int | None:
        node = mutants.mutated(Mutant("", part, with_argument(part, name, new)))
        try:
            return mutants.grow(node).num_edges
        except REFUSED:
            return None

    # windows of both sides are odd
    if count(value + 1) is not None:
        step = 1
    else:
        step = 2
    if value % step:
        low = value % step
    else:
        low = step
    high = max(mask.num_targets, mask.num_sources)
    high -= (high - low) % step
    ends = (count(low), count(high))
    num_edges = mask.num_edges
    if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
        return None
    rising = ends[0] < ends[1]
    while low < high:
        middle = low + (high - low) // (2 * step) * step
        here = count(middle)
        if here is None:
            return None
        if here >= num_edges if rising else here <= num_edges:
            high = middle
        else:
            low = middle + step
    if count(low) == num_edges and low != value:
        return low
    return None


def _of_documents(
    part: Expression, values: dict[str, Any], wrong: tuple[AttentionGraph, ...]
) -> Iterator[Mutant]:
    """A boundary that moved, whose tokens have extra and missing edges; or a split document."""
    ids = values.get("ids")
    if ids is None:
        labels = torch.repeat_interleave(torch.tensor(values["lengths"]))
    else:
        labels = ids.cpu()
    touched = [torch.unique(graph.edge_index.cpu()) for graph in wrong]
    tokens = touched[0][torch.isin(touched[0], touched[1])]
    if tokens.numel() == 0:
        tokens = _second_part(labels, wrong)
        if tokens.numel():
            first = int(tokens[0])
            new = labels.clone()
            new[tokens] = labels.max() + 1
            text = f"document {int(labels[first])} cut in two at token {first}"
            yield _labelled(part, values, new, text)
        return
    first = int(tokens[0])
    last = int(tokens[-1])
    near = labels[[max(0, first - 1), min(labels.numel() - 1, last + 1)]]
    for label in dict.fromkeys(near.tolist()):
        new = labels.clone()
        new[tokens] = label
        text = moved_boundary(labels, new)
        if text:
            yield _labelled(part, values, new, text)


def _of_trees(
    part: Expression, parent: Tensor, wrong: tuple[AttentionGraph, ...]
) -> Iterator[Mutant]:
    """A node with another parent: a wrong target below an extra source, or below its parent."""
    targets = torch.unique(torch.cat([graph.target.cpu() for graph in wrong]))
    top = targets[~torch.isin(parent[targets], targets)]
    sources = torch.unique(wrong[0].source.cpu()).flip(0)[:_NODES]
    for node in dict.fromkeys(torch.cat((top, targets))[:_NODES].tolist()):
        for other in dict.fromkeys([*sources.tolist(), *parent[sources].tolist(), -1]):
            if other not in (node, int(parent[node])):
                new = parent.clone()
                new[node] = other
                yield _mutant(
                    part, "parent", new, f"node {node} has parent {other}, not {int(parent[node])}"
                )


def _second_part(labels: Tensor, wrong: tuple[AttentionGraph, ...]) -> Tensor:
    """The tokens of a document that its first ones lack, if no other lacks edges."""
    source, target = wrong[1].edge_index.cpu()
    if (
        wrong[0].num_edges
        or source.numel() == 0
        or bool((labels[source] != labels[source[0]]).any())
    ):
        return source[:0]
    return torch.unique(target[source == source.min()])


def moved_boundary(labels: Tensor, new: Tensor) -> str:
    """In words, the boundary that moved, or "" if that is not all in which labels differ."""
    changed = torch.nonzero(labels != new).flatten()
    if changed.numel() == 0:
        return ""
    first = int(changed[0])
    last = int(changed[-1])
    runs = [torch.unique_consecutive(x, return_counts=True)[1].tolist() for x in (labels, new)]
    if last - first + 1 != changed.numel() or len(runs[0]) != len(runs[1]):
        return ""
    late = first > 0 and new[first] == labels[first - 1]
    if late:
        old = first
        now = last + 1
    else:
        old = last + 1
        now = first
    return f"a boundary of documents moved from token {old} to {now}"


def _labelled(part: Expression, values: dict[str, Any], labels: Tensor, text: str) -> Mutant:
    options = {name: value for name, value in values.items() if name not in ("ids", "lengths")}
    return Mutant(
        f"{text}, in {quoted(part)}", part, Expression("documents", (labels,), options), rank=_READ
    )
