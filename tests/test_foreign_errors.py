"""Every public function with every wrong kind for every argument: it works, or says in our own words what is wrong."""

import inspect
import os
import random
import re
import warnings

import every_call
import pytest
from every_call import CALLS, public
from torch import nn
from wrong_kinds import wrong_kinds

from graphattn.errors import GraphAttnError, GraphError

EVERY_KIND = bool(os.environ.get("GRAPHATTN_EVERY_KIND"))  # all 60,000 calls, some minutes; else a seeded choice
KINDS = 4  # of each argument
SLOW, FEW = {"verify", "find_leaks", "assert_exact", "plot", "plot_heads", "plot_weights", "plot_receptive_field"}, 2
NOT_PUBLIC = {name for name in CALLS if "__call__" in name} | {"Zoo.__getitem__"}


def test_the_table_has_every_public_function_class_and_method():
    assert set(CALLS) - NOT_PUBLIC == set(public())


def signature_of(function):
    return inspect.signature(function.forward if isinstance(function, nn.Module) else function)


def arguments(function, given):
    """(name of **options or None, name) of every argument."""
    for parameter in signature_of(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            yield from ((parameter.name, name) for name in given.arguments.get(parameter.name, {}))
        elif parameter.kind != parameter.VAR_POSITIONAL:
            yield None, parameter.name


def replaced(name, options, argument, value):
    """The valid call with another value for one argument."""
    function, args, given = CALLS[name]()
    bound = signature_of(function).bind(*args, **given)
    if options is None:
        bound.arguments[argument] = value
    else:
        bound.arguments[options] = {**bound.arguments[options], argument: value}
    return function, bound


ADVICE = re.compile(
    r"\b(?:raise|lower|increase|set|give) (budget|[a-z]+_[a-z_]+)\b|\b(?:try|pass|use|raise|give) ([a-z_]+)="
)


def lacking(name, error):
    """Arguments that an error tells the caller of a function to change, and that it does not take."""
    function, args, given = CALLS[name]()
    takes = signature_of(function).parameters
    named = {first or second for first, second in ADVICE.findall(re.sub(r"[\w.]+\([^()]*\)", "", str(error)))}
    missing = named - set(takes)
    if missing and any(parameter.kind == parameter.VAR_KEYWORD for parameter in takes.values()):
        for option in sorted(missing):
            function(*args, **{**given, option: 4})  # raises where nothing below takes it
        return set()
    return missing


def of_the_caller(error, value):
    """Whether the caller's own function or module failed, or Python itself refused the call."""
    frames, step = [], error.__traceback__
    while step is not None:
        frames.append(step.tb_frame)
        step = step.tb_next
    inside = any(frame.f_locals.get("self") is value for frame in frames) if isinstance(value, nn.Module) else False
    return inside or (isinstance(error, TypeError) and len(frames) == 1)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Functions that write a file write it away from here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_passed_no_foreign_error_comes_out(name):
    import matplotlib

    matplotlib.use("Agg")
    foreign, untrue = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function, args, given = CALLS[name]()
        function(*args, **given)
        for options, argument in arguments(function, signature_of(function).bind(*args, **given)):
            kinds = wrong_kinds()
            few = FEW if name in SLOW else KINDS
            for kind in kinds if EVERY_KIND else random.Random(f"{name} {argument}").sample(list(kinds), few):
                value = kinds[kind]
                function, bound = replaced(name, options, argument, value)
                try:
                    function(*bound.args, **bound.kwargs)
                except GraphAttnError as error:
                    untrue += [f"{argument} = {kind}: no {each}: {error}" for each in lacking(name, error)]
                except Exception as error:
                    if not of_the_caller(error, value):
                        foreign.append(f"{argument} = {kind}: {type(error).__name__}: {str(error)[:100]}")
    assert not foreign, f"{name}:\n" + "\n".join(foreign)
    assert not untrue, f"{name}:\n" + "\n".join(untrue)


def test_the_test_can_fail():
    """A function that lets torch's errors out is caught."""
    every_call.CALLS["leaky"] = lambda: (lambda x: every_call.torch.ones(x), (3,), {})
    try:
        with pytest.raises(AssertionError, match=r"leaky:\n.*TypeError"):
            test_whatever_is_passed_no_foreign_error_comes_out("leaky")
    finally:
        del every_call.CALLS["leaky"]


def test_advice_that_cannot_be_followed_is_caught():
    def stale(x):
        if x != 3:
            raise GraphError("x is too large; raise budget")

    every_call.CALLS["stale"] = lambda: (stale, (3,), {})
    try:
        with pytest.raises(AssertionError, match=r"stale:\n.* no budget: x is too large"):
            test_whatever_is_passed_no_foreign_error_comes_out("stale")
    finally:
        del every_call.CALLS["stale"]
