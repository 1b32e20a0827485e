"""Checks of the invariants: each function tries to contradict one claim, and says how it did."""

import torch
from torch import Tensor

from ..graph import AttentionGraph
from .bounds import agreement, difference, size
from .probe import SHOVE, Probe
from .sample import EXHAUSTIVE, Sample
from .threads import threads

Outcome = str | None  # what went wrong; None if nothing did
MOST_MOVED = 256  # sources that are moved one by one


def has_edges(probe: Probe) -> bool:
    """Whether something is read, and something comes out."""
    return bool(probe.busy) and probe.output.numel() > 0


def has_strangers(probe: Probe) -> bool:
    """Whether some probed target does not read everybody."""
    return has_edges(probe) and bool(_rows_with_non_neighbours(probe))


def _rows_with_non_neighbours(probe: Probe) -> list[int]:
    return [row for row in probe.probed if bool(probe.non_neighbours([row]).any())]


def non_neighbours_unread(probe: Probe) -> Outcome:
    """Moves all sources that a target does not read, for one target after the other."""
    for row in _rows_with_non_neighbours(probe):
        strange = probe.non_neighbours([row])
        before, after = probe.at(probe.output, [row]), probe.at(probe.run(probe.perturbed(strange)), [row])
        if not torch.equal(before, after):
            moved, apart = int(strange.sum()), difference(after, before)
            return f"moving {moved} sources without an edge into {probe.names([row])} changed the output by {apart:.3g}"
    return None


def no_gradient(probe: Probe) -> Outcome:
    """Sends a gradient back from a target alone. A missing one is an error of its own, and stands in the table."""
    for row in _rows_with_non_neighbours(probe) if probe.sent else []:
        strange = probe.non_neighbours([row])
        for name, grad in probe.sent[row].items():
            leak = size(grad[strange])
            if leak > 0.0:
                return f"{probe.names([row])} sent a gradient of {leak:.3g} to {name} of sources without an edge"
    return None


def neighbours_read(probe: Probe) -> Outcome:
    """A neighbour is read if it is sent a gradient, or if moving it alone changes the output.

    Without gradients every neighbour is moved on a small graph, one of each target on a large one.
    """
    silent: dict[int, list[int]] = {}  # source -> rows that send it nothing
    for row in probe.probed:
        near = probe.weighted_sources(row)
        if probe.gradients and probe.sent:
            gradients = sum((grad != 0).to(torch.int64) for grad in probe.sent[row].values())
            left = near if isinstance(gradients, int) else near[gradients[near] == 0]
            probe.pairs_read += near.numel() - left.numel()
        else:
            left = near if probe.piece.complete else near[row % near.numel()][None]
        for source in left.tolist():
            silent.setdefault(source, []).append(row)
    for source, rows in list(silent.items())[:MOST_MOVED]:
        unmoved = _unmoved(probe, source, rows)
        if unmoved is not None:
            return f"moving source {source} changed nothing at {probe.names([unmoved])}, which reads it"
        probe.pairs_read += len(rows)
    return None


def _unmoved(probe: Probe, source: int, rows: list[int]) -> int | None:
    """A row that does not notice when the source is moved, however far."""
    alone = torch.zeros(probe.graph.num_sources, dtype=torch.bool, device=probe.piece.targets.device)
    alone[source] = True
    for by in (1.0, 16.0, 256.0):  # half precision may round a small weight away
        output = probe.run(probe.perturbed(alone, by * SHOVE))
        rows = [row for row in rows if torch.equal(probe.at(output, [row]), probe.at(probe.output, [row]))]
        if not rows:
            return None
    return rows[0]


def strangers_tried(probe: Probe) -> str:
    """On how many pairs without an edge it was tried."""
    tried = sum(int(probe.non_neighbours([row]).sum()) for row in _rows_with_non_neighbours(probe))
    return _tried(probe, tried, "pair without an edge" if tried == 1 else "pairs without an edge", True)


def neighbours_tried(probe: Probe) -> str:
    """How many edges were tried; copies of one count once."""
    every = sum(probe.weighted_sources(row).numel() for row in probe.probed)
    silent = int((probe.edge_weight == 0).sum())
    what = _edges(probe.pairs_read) + " that weigh something" * (silent > 0)
    return _tried(probe, probe.pairs_read, what, probe.pairs_read == every)


def _edges(count: int) -> str:
    return "edge" if count == 1 else "edges"


def _of_edges(probe: Probe, count: int) -> str:
    return f"{count:,} of {probe.graph.num_edges:,} {_edges(probe.graph.num_edges)}"


def _tried(probe: Probe, count: int, what: str, whole: bool) -> str:
    busy = int(torch.unique(probe.piece.row[probe.edge_weight > 0]).numel())
    if whole and probe.piece.complete and len(probe.probed) == busy:
        return f"all {count:,} {what}"
    return f"{count:,} {what}, at {len(probe.probed)} of {probe.graph.num_targets:,} targets"


def isolated(probe: Probe) -> Outcome:
    """Looks at the targets without an edge."""
    rows = torch.nonzero(probe.degree == 0).flatten().tolist()
    outputs = probe.at(probe.output, rows)
    return None if bool((outputs == 0).all()) else f"one has {size(outputs):.3g}, or a NaN"


def same_bits(probe: Probe) -> Outcome:
    """Runs twice, both ways, in the caller's threads. A NaN is an error of its own, and stands in the table."""
    answers = []
    for _ in range(2):
        with threads(probe.threads):
            leaves, output = probe.run_with_gradients()
        values: dict[str, Tensor | None] = {"the output": output}
        if output.requires_grad:
            with threads(probe.threads):
                grads = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
            values |= zip((f"the gradient of {name}" for name in leaves), grads, strict=True)
        answers.append(values)
    for name, x in answers[0].items():
        y = answers[1][name]
        if x is not None and y is not None and not torch.equal(x, y) and not bool(torch.isnan(x).any()):
            return f"{name} of two runs differs by {difference(x.detach(), y.detach()):.3g}"
    return None


def _telling(probe: Probe) -> list[list[int]]:
    """Targets, those with the fewest edges first, one of whose edges is dropped."""
    rows = [row for row in probe.busy if probe.degree[row] == 1 or probe.neighbours(row).numel() > 1]
    return probe.groups(sorted(rows, key=lambda row: int(probe.degree[row])))


def removed_tried(probe: Probe) -> str:
    """How many edges are dropped."""
    return _of_edges(probe, sum(map(len, _telling(probe))))


def removed_edge(probe: Probe) -> Outcome:
    """Drops an edge, where it weighs most; not one whose copies carry the same weight without it."""
    # Less is rounding, as edges are now summed in another order; half precision rounds too coarsely to tell.
    coarse = probe.dtype in (torch.float16, torch.bfloat16)
    least = 0.0 if coarse else agreement(probe.dtype) * size(probe.output)
    for group in _telling(probe):
        gone = {row: _dropped(probe, row) for row in group}
        keep = torch.ones(probe.graph.num_edges, dtype=torch.bool, device=probe.piece.targets.device)
        keep[list(gone.values())] = False
        graph, leaves = probe.with_edges(torch.nonzero(keep).flatten())
        output = probe.run(leaves, graph)
        for row, edge in gone.items():
            if difference(probe.at(output, [row]), probe.at(probe.output, [row])) <= least:
                return f"dropping edge {edge} changed nothing at its {probe.names([row])}"
    return None


def _dropped(probe: Probe, row: int) -> int:
    """Any edge of a row, or the one that weighs most where not all weigh something."""
    own = probe.piece.row == row
    place = row % int(own.sum()) if bool((probe.edge_weight == 1).all()) else int(probe.edge_weight[own].argmax())
    return int(probe.piece.edge[own][place])


def _bias_masked(probe: Probe) -> Tensor:
    """All edges of one target, and one of each of two others."""
    whole, *others = probe.busy
    piece = probe.piece
    return torch.cat([piece.edge[piece.row == whole]] + [piece.edge[piece.row == row][:1] for row in others[:2]])


def silenced_tried(probe: Probe) -> str:
    """How many edges are given a bias of -inf."""
    return _of_edges(probe, _bias_masked(probe).numel())


def silenced_edge(probe: Probe) -> Outcome:
    """Sets the biases of one whole target, and of one edge of another, to -inf."""
    gone = _bias_masked(probe)
    keep = torch.ones(probe.graph.num_edges, dtype=torch.bool, device=gone.device)
    keep[gone] = False
    leaves = {name: leaf.clone() for name, leaf in probe.leaves.items()}
    leaves["score_bias"][gone] = -torch.inf
    graph, fewer = probe.with_edges(torch.nonzero(keep).flatten())
    if graph.num_edges == 0:
        return None
    leaves = {name: leaf.requires_grad_(probe.gradients) for name, leaf in leaves.items()}
    output = probe.subject.run(leaves, probe.case, probe.backend).output
    apart = agrees(probe, output.detach(), probe.run(fewer, graph))
    if apart is not None or not output.requires_grad:
        return apart
    grads = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
    for name, grad in zip(leaves, grads, strict=True):
        if grad is not None and not bool(torch.isfinite(grad).all()):
            return f"the gradient of {name} is not finite"
        if grad is not None and name == "score_bias" and bool((grad[gone] != 0).any()):
            return "such an edge is sent a gradient"
    return None


def can_silence(probe: Probe) -> bool:
    """Whether there are biases to set to -inf."""
    return can_list(probe) and "score_bias" in probe.leaves


def agrees(probe: Probe, output: Tensor, other: Tensor | None = None) -> Outcome:
    """Compares an output with another, the probe's own by default, to the bound of two exact results."""
    output, other = probe.steady(output), probe.steady(probe.output if other is None else other)
    apart, limit = difference(output, other) / (size(other) or 1.0), agreement(probe.dtype)
    return None if apart <= limit else f"outputs differ by {apart:.3g} of their size (bound {limit:.3g})"


def can_list(probe: Probe) -> bool:
    """Whether the graph can be listed anew, edge by edge."""
    return has_edges(probe) and probe.listable


def rows_of_rule(graph: AttentionGraph, piece: Sample) -> int:
    """Rows of the sample on which ``contains`` is called on every source."""
    return min(piece.targets.numel(), max(1, 16 * EXHAUSTIVE // max(1, graph.num_sources)))


def rule_disagrees(graph: AttentionGraph, piece: Sample) -> Outcome:
    """A pair on which ``contains`` and the listed edges of the sampled rows differ."""
    rows = rows_of_rule(graph, piece)
    targets = piece.targets[:rows]
    inside = graph.contains(targets[:, None], torch.arange(graph.num_sources, device=targets.device)[None, :])
    listed = torch.zeros_like(inside)
    near = piece.row < rows
    listed[piece.row[near], piece.columns[piece.column[near]]] = True
    wrong = torch.nonzero(inside != listed)
    if wrong.numel() == 0:
        return None
    row, source = wrong[0].tolist()
    return f"contains({int(targets[row])}, {source}) is {bool(inside[row, source])}, and its runs say otherwise"
