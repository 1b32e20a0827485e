"""What an argument is if nobody says: a default that changes in silence changes every result made
without it.

A new argument need not be listed; run this file to write ``defaults.json`` anew.
"""

import inspect
import json
from pathlib import Path

import graphattn as ga
from graphattn import analysis, convert, graphs, hf, models, nn, viz
from graphattn.backends import BACKENDS, request

WANTED = Path(__file__).with_name("defaults.json")
PLAIN = (bool, int, float, str, tuple)


def named():
    """Every public function and class by its name, and what the planner counts with."""
    for room in (ga, analysis, convert, graphs, hf, models, nn, viz):
        for name in sorted(getattr(room, "__all__", dir(room))):
            each = getattr(room, name)
            if inspect.isfunction(each) or (
                inspect.isclass(each) and not issubclass(each, Exception)
            ):
                yield f"{room.__name__}.{name}", each
    yield "Request", request.Request
    yield from (
        (name, backend.built_in()) for name, backend in BACKENDS.items() if backend.problems()
    )


def defaults(each):
    """Those that are plain values, by argument; of a class also those of its public methods."""
    if isinstance(each, dict):
        return {argument: repr(default) for argument, default in each.items()}
    found = {}
    methods = inspect.getmembers(each, inspect.isfunction) if inspect.isclass(each) else ()
    for label, call in [("", each), *((f"{k}.", f) for k, f in methods if not k.startswith("_"))]:
        if not (call.__module__ or "").startswith("graphattn"):
            continue
        for p in inspect.signature(call).parameters.values():
            if isinstance(p.default, PLAIN):
                found[f"{label}{p.name}"] = repr(p.default)
    return found


FOUND = dict(named())


def test_defaults_are_those_that_they_were():
    for name, wanted in json.loads(WANTED.read_text("utf-8")).items():
        found = defaults(FOUND[name])
        assert {argument: found.get(argument) for argument in wanted} == wanted, name


if __name__ == "__main__":  # writes what is wanted
    table = {name: defaults(each) for name, each in FOUND.items()}
    lines = [
        f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(table.items()) if each
    ]
    WANTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
