"""Everything public under the modes of a caller and on graphs that users have: its plain result, or
our own error.

The table is :mod:`sweep_table`. Modes are crossed with graphs; of these the quick tests take a
part.
"""

import dataclasses
import inspect
import warnings
from contextlib import contextmanager

import pytest
import torch
from sweep_table import ALONE, ALONE_LEARNED, ENCODINGS, GRAPHS, LAYERS, MEASURES, NOT_CALLED

import graphattn as ga
from graphattn import analysis, nn
from graphattn.backends.weights import EdgeWeights
from graphattn.errors import GraphAttnError
from graphattn.graph import AttentionGraph

NARROW = 0.05  # largest error of a learned layer in bfloat16, relative to its largest number


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": float64,
    "inference mode": torch.inference_mode,
}
ON_GRAPHS = MEASURES | ENCODINGS | LAYERS
EVERY = [(name, graph) for name in ON_GRAPHS for graph in GRAPHS]
EVERY += [(name, "square") for name in (*ALONE, *ALONE_LEARNED)]
FUNCTIONS = ON_GRAPHS | ALONE | ALONE_LEARNED


def parts(value):
    """The tensors, numbers and words of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    if isinstance(value, AttentionGraph):
        return [value.edge_index]
    if isinstance(value, EdgeWeights):
        return [value.alpha.detach()]
    if dataclasses.is_dataclass(value):
        return [
            part
            for field in dataclasses.fields(value)
            if field.compare
            for part in parts(getattr(value, field.name))
        ]
    if isinstance(value, dict):
        return [part for item in value.values() for part in parts(item)]
    if isinstance(value, tuple | list):
        return [part for item in value for part in parts(item)]
    return [value]


def result(name, graph):
    """The result, or the words of our own error; any other error is a fault."""
    torch.manual_seed(0)
    try:
        return parts(FUNCTIONS[name](graph))
    except GraphAttnError as error:
        return [f"{type(error).__name__}: {error}"]


def is_near(found, wanted, is_narrow):
    if not isinstance(wanted, torch.Tensor):
        both_nan = found != found and wanted != wanted
        return (
            found == wanted
            or both_nan
            or (isinstance(wanted, float) and found == pytest.approx(wanted, rel=1e-6))
        )
    if found.shape != wanted.shape or found.isnan().any() != wanted.isnan().any():
        return False
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    wide = [torch.nan_to_num(x.double()) for x in (found, wanted)]
    size = float(wide[1].abs().amax()) if wanted.numel() else 0.0
    bound = NARROW if is_narrow else 1e-6
    return torch.allclose(*wide, rtol=0, atol=bound * max(1.0, size))


def differs(name, mode, graph):
    """What a mode changes, in words, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = result(name, GRAPHS[graph]())
        with MODES[mode]():
            found = result(name, GRAPHS[graph]())
    is_narrow = mode == "autocast" and (name in LAYERS or name in ALONE_LEARNED)
    same = len(found) == len(wanted) and all(map(is_near, found, wanted, [is_narrow] * len(wanted)))
    return "" if same else f"{name}: {found}"[:120] + f" for {wanted}"[:90]


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_mode_of_the_caller_changes_nothing(graph, mode):
    cases = [(name, own) for name, own in EVERY if own == graph]
    found = [differs(name, mode, own) for name, own in cases]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.sample(3)
@pytest.mark.parametrize("graph", GRAPHS)
def test_vmap_takes_examples_one_by_one(graph):
    found = []
    for name, run in ON_GRAPHS.items():
        own = GRAPHS[graph]()
        if (
            hasattr(run, "example")
            and is_mapped(run, own, torch.randn(3, *run.example.shape)) is False
        ):
            found.append(name)
    assert found == []


def is_mapped(run, graph, examples):
    """True if vmap gives what each example does, or our own error; any other error is a fault."""
    try:
        wanted = [parts(run(graph, one)) for one in examples]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mapped = parts(torch.func.vmap(lambda one: run(graph, one))(examples))
    except GraphAttnError:
        return True
    except RuntimeError as error:  # of values that vmap's tensors do not have
        return str(error).startswith("vmap: ")
    return all(
        is_near(one, torch.stack(each), False) for one, *each in zip(mapped, *wanted, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_builder_makes_the_same_graph_in_every_mode(mode):
    zoo = ga.graphs.zoo()
    wanted = {name: named.graph() for name, named in zoo.items()}
    with MODES[mode]():
        found = {name: named.graph() for name, named in zoo.items()}
    assert [name for name in wanted if not found[name].equals(wanted[name])] == []


def test_everything_public_is_in_the_table():
    text = inspect.getsource(inspect.getmodule(LAYERS["TransformerBlock"]))
    names = [
        *nn.__all__,
        *(name for name in dir(analysis) if callable(getattr(analysis, name)) and name[0] != "_"),
    ]
    assert [
        name
        for name in names
        if name not in FUNCTIONS and name not in NOT_CALLED and f"nn.{name}" not in text
    ] == []
    code = " ".join(named.code for named in ga.graphs.zoo().values())
    assert [name for name in ga.graphs.BUILDERS if f"{name}(" not in code] == []
