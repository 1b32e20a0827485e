"""Saved tensors of every autograd function of ours: a backward unpacks each at most once.

Non-reentrant checkpoints, torch's advice and the default of transformers, rely on that.
"""

import importlib
import pkgutil

import pytest
import torch
from torch._library.custom_ops import OPDEFS
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import graphattn as ga
from graphattn import backends, kernels
from graphattn.backends import BACKENDS
from graphattn.backends.inputs import inputs_of
from graphattn.backends.tiles.compacted import compacted_run
from graphattn.backends.tiles.gathered import gathered_run
from graphattn.kernels.cells.operator import cell_products
from graphattn.kernels.plain.sum_operators import slices_of, sums_of_slices
from graphattn.nn.normalizers import NORMALIZERS
from graphattn.nn.scores import SCORES

N, HEADS, WIDTH = 9, 2, 8
torch.manual_seed(0)
GRAPH = ga.graphs.knn(torch.rand(N, 2), 3)
CELLS = ga.graphs.serialized_hierarchy(torch.cartesian_prod(*[torch.arange(3.0)] * 3), cell=1.0)
#: Functions that save no tensor of a caller's graph, or run on a GPU or in several processes.
ELSEWHERE = {"_Entrance", "TransformedChoice", "_Cast", "_Attention"}


def of_layer(**options):
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(WIDTH, HEADS, **options)
    bias = torch.randn(GRAPH.num_edges, HEADS, requires_grad=True)

    def call(x):
        torch.manual_seed(0)
        return layer(x, GRAPH, score_bias=bias)

    return call, (N, WIDTH), [bias, *layer.parameters()]


def of_attention(**options):
    def call(x):
        result = ga.attention(x, 2 * x, x.sin(), GRAPH, **options)
        if isinstance(result, torch.Tensor):
            return result
        if "return_lse" not in options:
            return result.output
        return torch.cat((result.output, result.lse[..., None]), -1)

    return call, (N, HEADS, 4), []


def of_run(run):
    """One way of a backend, which a call may not choose on this device."""

    def call(x):
        outputs = run(GRAPH, inputs_of(x, 2 * x, x.sin(), GRAPH))
        return torch.cat((outputs.output, outputs.lse[..., None]), -1)

    return call, (N, HEADS, 4), []


def of_cells():
    near = CELLS.levels[0].near[0]
    table, back, ptr = near.tables
    weight = torch.randn(27, 5, WIDTH, generator=torch.Generator().manual_seed(0))

    def call(x):
        edges = (table, back, near.source, near.target, ptr)
        return cell_products(x, weight.requires_grad_(), *edges)

    return call, (1, 27, WIDTH), [weight]


def of_sums():
    """As compiled code calls them."""
    index = torch.tensor([2, 0, 2, 4, 4, 2])

    def call(x):
        return sums_of_slices(slices_of(x, index, 0), index, 5, 0)

    return call, (N, WIDTH), []


def watched(backend):
    """A call in a mode that sees each operator."""
    call, shape, parameters = of_attention(backend=backend)

    def seen(x):
        with FlopCounterMode(display=False):
            return call(x)

    return seen, shape, parameters


CASES = {f"{score}, {normalize}": (of_layer, {"score": score, "normalize": normalize})
         for score in SCORES for normalize in ("softmax", "sigmoid")}  # fmt: skip
CASES |= {name: (of_layer, {"normalize": name}) for name in NORMALIZERS if name != "sum"}
CASES |= {name: (of_attention, {"backend": name}) for name in BACKENDS}
CASES |= {
    f"{name}, lse": (of_attention, {"backend": name, "return_lse": True}) for name in BACKENDS
}
CASES |= {
    f"{name}, weights": (of_attention, {"backend": name, "return_weights": True})
    for name in BACKENDS
    if name != "tiles"  # which return none
}
CASES |= {
    "dropout": (of_layer, {"dropout": 0.4}),
    "cells": (of_cells, {}),
    "sums": (of_sums, {}),
    "watched edges": (watched, {"backend": "edges"}),
    "watched tiles": (watched, {"backend": "tiles"}),
    "gathered": (of_run, {"run": lambda graph, x: gathered_run(graph, x, True)}),
    "compacted": (of_run, {"run": lambda graph, x: compacted_run(graph, x, True)}),
}


def results(make, options, run):
    """Output and gradients of a call that ``run`` runs, and the names of its autograd functions."""
    call, shape, parameters = make(**options)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True)
    leaves = [x, *parameters]
    output = run(call, x)
    grads = torch.autograd.grad(
        output.square().sum(), leaves, allow_unused=True, materialize_grads=True
    )
    return [output, *grads]


def hooked(call, x):
    unpacked = []

    def unpack(packed):
        assert all(packed is not other for other in unpacked)
        unpacked.append(packed)
        return packed[0]

    with saved_tensors_hooks(lambda tensor: [tensor], unpack):
        return call(x)


def on_cpu(call, x):
    with save_on_cpu():
        return call(x)


WAYS = {
    "checkpoint": lambda call, x: checkpoint(call, x, use_reentrant=False),
    "nested checkpoints": lambda call, x: checkpoint(
        lambda x: checkpoint(call, x, use_reentrant=False), x, use_reentrant=False
    ),
    "save_on_cpu": on_cpu,
    "hooks": hooked,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_saved_tensors_are_unpacked_once(name, way):
    wanted = results(*CASES[name], lambda call, x: call(x))
    assert all(map(torch.equal, results(*CASES[name], WAYS[way]), wanted))


def functions_of(output):
    """The names of the autograd functions before an output."""
    names = set()
    left = [output.grad_fn]
    seen = set()
    while left:
        function = left.pop()
        if function is not None and function not in seen:
            seen.add(function)
            names.add(function.name())
            left += [before for before, _ in function.next_functions]
    return names


def test_every_autograd_function_is_in_a_case():
    for room in (backends, kernels):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not module.name.endswith(("triton", "gpu")) and ".cuda" not in module.name:
                importlib.import_module(module.name)
    used = set()
    for make, options in CASES.values():
        call, shape, parameters = make(**options)
        x = torch.randn(shape, requires_grad=True)
        output = call(x)
        used |= functions_of(output)
        if "dropout" not in options:  # of which there is no second derivative
            grads = torch.autograd.grad(
                output.square().sum(), [x, *parameters], create_graph=True, allow_unused=True
            )
            for grad in filter(None.__ne__, grads):
                used |= functions_of(grad)
    ours = {
        f"GeneratedBackwardFor_{name.replace('::', '_')}_defaultBackward"
        for name, operator in OPDEFS.items()
        if name.startswith("graphattn::") and operator._backward_fn is not None
    }
    ours |= {
        f"{function.__name__}Backward"
        for function in torch.autograd.Function.__subclasses__()
        if function.__module__.startswith("graphattn.")
        and not function.__module__.startswith("graphattn.distributed")
        and function.__name__ not in ELSEWHERE
    }
    assert ours - used == set()
