"""What ``help`` and ``dir`` show of the public rooms: their classes and functions, and not their
files.
"""

import inspect
import pydoc
from types import ModuleType

import pytest
from torch import nn

import graphattn as ga
import graphattn.viz


@pytest.mark.parametrize("room", [ga.nn, ga.models], ids=lambda room: room.__name__)
def test_help_of_a_constructor_is_not_torchs(room):
    """It names the docstring of the class, or describes the arguments itself."""
    modules = [getattr(room, name) for name in room.__all__]
    modules = [each for each in modules if inspect.isclass(each) and issubclass(each, nn.Module)]
    assert len(modules) > 9
    texts = {each.__name__: inspect.getdoc(each.__init__) for each in modules}
    assert [name for name, text in texts.items() if "Initialize internal" in (text or "")] == []


@pytest.mark.parametrize(
    "room", [ga.nn, ga.models, ga.graphs, ga.analysis, graphattn.viz], ids=lambda r: r.__name__
)
def test_help_lists_classes_and_functions(room, monkeypatch):
    for way in ("docclass", "docroutine"):  # their own pages make a MiB
        monkeypatch.setattr(
            pydoc._PlainTextDoc, way, lambda self, thing, *rest: f"page of {thing.__name__}\n"
        )
    shown = pydoc.plain(pydoc.render_doc(room, renderer=pydoc.plaintext))
    own = [
        thing
        for thing in (getattr(room, name) for name in room.__all__)
        if inspect.isclass(thing) or inspect.isfunction(thing)
    ]
    assert len(own) > 4
    assert [thing.__name__ for thing in own if f"page of {thing.__name__}\n" not in shown] == []
    public = [name for name in dir(room) if not name.startswith("_")]
    assert sorted(public) == sorted(room.__all__)
    assert not any(isinstance(getattr(room, name), ModuleType) for name in public)


@pytest.mark.parametrize("room", [ga.analysis, ga.models], ids=lambda r: r.__name__)
def test_help_of_a_room_begins_with_a_line_for_each_public_name(room):
    """Before pydoc's list of its files, which names no function."""
    lines = [line.strip() for line in room.__doc__.splitlines() if line.startswith("    ")]
    assert sorted(line.split(": ", 1)[0] for line in lines) == sorted(room.__all__)
    assert all(line.split(": ", 1)[1].endswith(".") for line in lines)
