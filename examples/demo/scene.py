"""What a scene is, and how it registers itself."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

import graphattn as ga


@dataclass(frozen=True)
class Scene:
    """A graph of a real input, and what to do with it.

    Args:
        graph: Who may read whom.
        features: (T, F), what is known of every target.
        claim: Whether the title is true of this graph.
        target: The node whose attention weights are drawn.
        look: How to draw it: arguments of ``graphattn.plot`` that say where nodes are.
        context: (S, F), what is known of every source, where these are other nodes.
        highlight: Targets whose neighbourhoods are drawn; chosen by ``plot`` if left out.
        first: Draw only the first so many nodes.
    """

    graph: ga.AttentionGraph
    features: Tensor
    claim: bool
    target: int
    look: dict[str, Any] = field(default_factory=dict)
    context: Tensor | None = None
    highlight: Any = None
    first: int | None = None


@dataclass(frozen=True)
class Script:
    """A function that makes a scene, and what the page says about it: its docstring and its own source."""

    title: str
    make: Callable[[], Scene]

    @property
    def name(self) -> str:
        """``terrain mesh``: for the table."""
        return self.make.__name__.replace("_", " ")

    @property
    def text(self) -> str:
        """The paragraph under the title."""
        return " ".join((inspect.getdoc(self.make) or "").split())

    @property
    def code(self) -> str:
        """The lines of the function between its docstring and its return."""
        lines = textwrap.dedent(inspect.getsource(self.make)).splitlines()
        function = ast.parse("\n".join(lines)).body[0]
        assert isinstance(function, ast.FunctionDef)
        first = function.body[0].end_lineno or 0
        return textwrap.dedent("\n".join(lines[first : function.body[-1].lineno - 1]))


SCRIPTS: list[Script] = []


def scene(title: str) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """Add a function to the demo under a title that is a claim."""

    def register(make: Callable[[], Scene]) -> Callable[[], Scene]:
        SCRIPTS.append(Script(title, make))
        return make

    return register
