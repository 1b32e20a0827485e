"""Where the variables of a Python program are defined and used, in the order of evaluation."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
#: Fields that are evaluated in another order than the one in which the tree has them.
_ORDER = {
    ast.Assign: ("value", "targets"),
    ast.AnnAssign: ("annotation", "value", "target"),
    ast.NamedExpr: ("value", "target"),
    ast.For: ("iter", "target", "body", "orelse"),
    ast.AsyncFor: ("iter", "target", "body", "orelse"),
    ast.comprehension: ("iter", "target", "ifs"),
}


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension; ``bound`` are the names that it defines."""

    above: "Scope | None"
    kind: str
    bound: set[str] = field(default_factory=set)
    elsewhere: dict[str, str] = field(default_factory=dict)  # "global" or "nonlocal", by name

    def owner(self, name: str) -> "Scope":
        """The scope whose variable ``name`` means here; the module for one that nobody binds, a
        builtin.
        """
        scope, first = self, True
        while scope.above is not None:
            # functions do not see the names of a class
            if name in scope.bound and (first or scope.kind != "class"):
                return scope
            to_module, first = scope.elsewhere.get(name) == "global", False
            scope = scope.above
            while to_module and scope.above is not None:
                scope = scope.above
        return scope

    def binds(self) -> "Scope":
        """Where ``:=`` defines: outside of comprehensions."""
        return (
            self.above.binds() if self.kind == "comprehension" and self.above is not None else self
        )


@dataclass(frozen=True)
class Occurrence:
    """A variable at a node of the tree."""

    name: str
    scope: Scope
    node: ast.AST
    defines: bool


def occurrences(tree: ast.AST) -> list[Occurrence]:
    """Every use and definition of a variable, each branch and each loop once, function bodies where
    they stand.
    """
    result: list[Occurrence] = []
    _Walk(result).visit(tree, Scope(None, "module"))
    return result


class _Walk:
    def __init__(self, found: list[Occurrence]) -> None:
        self.found = found

    def define(self, name: str | None, scope: Scope, node: ast.AST) -> None:
        if name is not None:
            if name not in scope.elsewhere:
                scope.bound.add(name)
            self.found.append(Occurrence(name, scope, node, True))

    def all(self, nodes: Iterable[Any], scope: Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self.name(node, scope)
        elif isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            self.body(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self.comprehension(node, scope)
        elif isinstance(node, ast.AugAssign):
            self.augmented(node, scope)
        elif isinstance(node, ast.NamedExpr):
            self.visit(node.value, scope)
            self.define(node.target.id, scope.binds(), node.target)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.elsewhere.update(dict.fromkeys(node.names, kind))
        elif (
            isinstance(node, ast.AnnAssign)
            and node.value is None
            and isinstance(node.target, ast.Name)
        ):
            scope.bound.add(node.target.id)  # declared, and neither defined nor used
            self.visit(node.annotation, scope)
        elif isinstance(node, ast.ExceptHandler):
            self.all((node.type,) if node.type is not None else (), scope)
            self.define(node.name, scope, node)
            self.all(node.body, scope)
        else:
            self.all(_children(node), scope)
            self.define(_defined(node), scope, node)

    def name(self, node: ast.Name, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Store):
            self.define(node.id, scope, node)
        else:
            self.found.append(Occurrence(node.id, scope, node, False))

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """``x += y`` uses x and y, and then defines x."""
        if not isinstance(node.target, ast.Name):
            return self.all((node.target, node.value), scope)
        self.found.append(Occurrence(node.target.id, scope, node.target, False))
        self.visit(node.value, scope)
        return self.define(node.target.id, scope, node.target)

    def body(self, node: Any, scope: Scope) -> None:
        if isinstance(node, ast.ClassDef):
            self.all((*node.decorator_list, *node.bases, *node.keywords), scope)
            self.all(node.body, Scope(scope, "class"))
            return self.define(node.name, scope, node)
        arguments = node.args
        parameters = [
            *arguments.posonlyargs,
            *arguments.args,
            arguments.vararg,
            *arguments.kwonlyargs,
            arguments.kwarg,
        ]
        parameters = [parameter for parameter in parameters if parameter is not None]
        self.all(getattr(node, "decorator_list", ()), scope)
        self.all(
            (
                default
                for default in (*arguments.defaults, *arguments.kw_defaults)
                if default is not None
            ),
            scope,
        )
        self.all((each.annotation for each in parameters if each.annotation is not None), scope)
        if getattr(node, "returns", None) is not None:
            self.visit(node.returns, scope)
        self.define(getattr(node, "name", None), scope, node)
        inside = Scope(scope, "function")
        for parameter in parameters:
            self.define(parameter.arg, inside, parameter)
        return self.all(node.body if isinstance(node.body, list) else [node.body], inside)

    def comprehension(self, node: Any, scope: Scope) -> None:
        inside = Scope(scope, "comprehension")
        for number, generator in enumerate(node.generators):
            # the first is evaluated outside
            self.visit(generator.iter, scope if number == 0 else inside)
            self.all((generator.target, *generator.ifs), inside)
        self.all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,), inside)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Dict):
        yield from (
            part
            for pair in zip(node.keys, node.values, strict=True)
            for part in pair
            if part is not None
        )
        return
    for name in _ORDER.get(type(node), node._fields):
        value = getattr(node, name, None)
        yield from (
            each
            for each in (value if isinstance(value, list) else [value])
            if isinstance(each, ast.AST)
        )


def _defined(node: ast.AST) -> str | None:
    """The variable that a node without a Name of its own defines."""
    if isinstance(node, ast.alias):
        return None if node.name == "*" else node.asname or node.name.split(".")[0]
    if isinstance(node, ast.MatchMapping):
        return node.rest
    return node.name if isinstance(node, ast.MatchAs | ast.MatchStar) else None
