"""Values are frozen, and edge sets are told apart by identity: caches and threads rely on both."""

import dataclasses
import importlib
import pkgutil

import graphattn
from graphattn.graph.edges import Edges

SKIPPED = ("graphattn.__main__", "graphattn.viz", "graphattn.cli")
MODULES = [
    m.name
    for m in pkgutil.walk_packages(graphattn.__path__, "graphattn.")
    if not m.name.startswith(SKIPPED)
]


def dataclasses_of(name):
    values = vars(importlib.import_module(name)).values()
    return {
        v
        for v in values
        if isinstance(v, type) and dataclasses.is_dataclass(v) and v.__module__ == name
    }


FOUND = sorted(
    {each for name in MODULES for each in dataclasses_of(name)}, key=lambda each: each.__qualname__
)
#: Filled while something is made, read or run.
FILLED = {
    "graphattn.hf.ticket.Generation",
    "graphattn.bench.timing.PeerComparison",
    "graphattn.bench.timing.PeerTimes",
    "graphattn.models.text.with_memory.HeldMemory",
    "graphattn.study.comparison.Comparison",
    "graphattn.study.plan.Study",
    "graphattn.training.running.loop.TrainingState",
}


def test_a_value_is_frozen():
    filled = {
        f"{each.__module__}.{each.__qualname__}"
        for each in FOUND
        if each.__setattr__ is object.__setattr__  # a frozen one refuses
    }
    assert filled == FILLED


def test_an_edge_set_is_itself_alone():
    assert Edges.__eq__ is object.__eq__
