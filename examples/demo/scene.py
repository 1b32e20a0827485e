"""What a scene is, and how it registers itself."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

import graphattn as ga

#: What makes the files of this folder known to a program that runs in the repository's.
_FOLDER = 'import sys; sys.path.insert(0, "examples/demo")'


@dataclass(frozen=True)
class Scene:
    """A graph of a real input, and what to do with it.

    Args:
        graph: Who may read whom.
        features: (T, F), what is known of every target.
        claim: Whether the title holds for this graph, as far as lines of code can tell.
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
    """A function that makes a scene, and what the page says about it: its docstring and its own
    source.
    """

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
        """Lines that run by themselves, and make ``scene``: the function's own, after what they use
        of its module.
        """
        lines = textwrap.dedent(inspect.getsource(self.make)).splitlines()
        function = ast.parse("\n".join(lines)).body[0]
        assert isinstance(function, ast.FunctionDef)
        body = textwrap.dedent("\n".join(lines[function.body[0].end_lineno or 0 :]))
        body = "scene = ".join(body.rsplit("return ", 1))
        own = needed(body, inspect.getsource(inspect.getmodule(self.make) or self.make))
        return f"{_FOLDER}\n{own}\n\n{body}"


def needed(body: str, module: str) -> str:
    """The imports and constants of a module that some lines use, and what those use themselves."""
    kept: list[str] = []
    used = names_read(ast.parse(body))
    for statement in reversed(ast.parse(module).body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statement.names = [
                name for name in statement.names if (name.asname or name.name) in used
            ]
            kept += [ast.unparse(statement)] * bool(statement.names)
        elif isinstance(statement, ast.Assign) and used & {
            ast.unparse(name) for name in statement.targets
        }:
            used |= names_read(statement)
            kept += reversed(module.splitlines()[statement.lineno - 1 : statement.end_lineno])
    return "\n".join(reversed(kept))


def names_read(code: ast.AST) -> set[str]:
    """The names that some code reads."""
    return {
        node.id
        for node in ast.walk(code)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


SCRIPTS: list[Script] = []


def scene(title: str) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """Add a function to the demo under a title that is a claim."""

    def register(make: Callable[[], Scene]) -> Callable[[], Scene]:
        SCRIPTS.append(Script(title, make))
        return make

    return register
