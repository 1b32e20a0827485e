"""Tiles through the block kernel, on the CPU: blocks of targets on pieces of sources, in place."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.modes import constant_result
from ...operands import Inputs, Outputs, are_tracked
from ...plans.cache import cached, known
from ...plans.whole import MOST_RUNS
from ..device import without_kernels
from ..place_bias import PlaceBias
from ..request import Request, flat_batch, with_lead
from ..rows import sigmoid_of


def reasons_against_blocks(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why the block kernel does not run a call that tiles can run."""
    if request.device.type != "cpu":
        return [f"the block kernel is for the CPU, and the tensors are on {request.device}"]
    options = {
        "a bias of each edge": request.score_bias and not request.by_place,
        "a bias beside a softcap": request.by_place and request.softcap,
        "a bias beside a sigmoid": request.by_place and request.sigmoid,
        "dropout": request.dropout,
    }
    reasons = [
        f"the block kernel does not support {option}"
        for option, is_used in options.items()
        if is_used
    ]
    if request.normalize and not request.sigmoid:
        reasons.append("the block kernel supports softmax and sigmoid only")
    if graph.edges.num_runs > MOST_RUNS:
        reasons.append(f"a plan of {graph.edges.num_runs:,} intervals is over {MOST_RUNS:,}")
    if reasons:
        return reasons
    return without_kernels(request.device)


def lanes_of(itemsize: int) -> int:
    """Numbers of a vector of this CPU, for numbers of so many bytes."""
    from ...kernels.llvm.native import Target

    return Target.of_host().vector_bytes // itemsize


def block_work(graph: AttentionGraph, request: Request) -> int:
    """The cost of a graph's pieces, in pairs of a long one."""
    from ...plans.pieces import work

    return work(graph, lanes_of(request.statistics.itemsize))


def block_bytes(graph: AttentionGraph, request: Request) -> int:
    """Approximate bytes of the plan, and of the peak and the sum of each target."""
    state = 2 * request.batch * request.heads * graph.num_targets * request.statistics.itemsize
    return state + 24 * graph.num_targets


def block_run(graph: AttentionGraph, inputs: Inputs, request: Request) -> Outputs:
    """Attention on a graph without repeated edges."""
    # registering operators is slow
    from ...kernels.blocks.exponents import unit_of_levels
    from ...kernels.blocks.operator import attend, log_sums

    query, key, value = (flat_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    softcap = 0.0
    if inputs.softcap is not None:
        softcap = inputs.softcap
    heads = key.shape[2]
    plan = _plan(graph, request.statistics.itemsize, request.batch * heads)
    table, *places = _biases(inputs, request)
    tracked = are_tracked(query, key, value, table)
    output, levels, totals = attend(
        *(query, key, value, table),
        *plan,
        *places,
        _thresholds(graph, inputs),
        inputs.scale,
        softcap,
        tracked=tracked,
    )
    lead = inputs.query.shape[:-3]
    output = with_lead(output, lead)
    if not request.lse:
        return Outputs(output)
    unit = unit_of_levels(inputs.scale, softcap)
    return Outputs(output, None, with_lead(log_sums(levels, totals, plan[1], unit), lead))


def _thresholds(graph: AttentionGraph, inputs: Inputs) -> Tensor | None:
    """The numbers (T,) that sigmoids take from scores: minus their bias, or the log of a degree."""
    if inputs.normalize is None:
        return None
    sigmoid = sigmoid_of(inputs.normalize)
    if sigmoid.bias is None:
        (levels,) = _logs_of_degrees(graph)
        return levels.to(inputs.statistics)
    return torch.full((graph.num_targets,), -sigmoid.bias, dtype=inputs.statistics)


@constant_result
def _logs_of_degrees(graph: AttentionGraph) -> tuple[Tensor]:
    def make() -> tuple[Tensor]:
        return (graph.in_degree.cpu().double().clamp(min=1.0).log(),)

    return cached(graph, _logs_of_degrees, make)


def _biases(inputs: Inputs, request: Request) -> tuple[Any, ...]:
    """The table of biases (V, H) in the dtype of sums, and places; None without."""
    if not isinstance(inputs.score_bias, PlaceBias):
        return None, None, None
    table, *places = inputs.score_bias
    return table.to(request.statistics).expand(-1, request.heads), *places


@constant_result
def _plan(graph: AttentionGraph, itemsize: int, heads: int) -> tuple[Any, ...]:
    """The operands of a plan, a constant of compiled code."""
    return known(
        graph, "plans of blocks", (itemsize, heads), partial(_new_plan, graph, itemsize, heads)
    )


def _new_plan(graph: AttentionGraph, itemsize: int, heads: int) -> tuple[Any, ...]:
    from ...kernels.blocks import operator  # noqa: F401 (compiled code finds its operators)
    from ...plans.pieces import cuts, pieces

    lanes = lanes_of(itemsize)
    plan = pieces(graph, lanes)
    return (*plan, *cuts(graph, lanes, heads), plan.work)
