"""Every error the library raises on purpose, in one small tree.

A message names the argument, what was expected, what came, and what to try.
"""

from collections.abc import Iterable


class GraphAttnError(Exception):
    """The root of the tree."""


class GraphError(GraphAttnError, ValueError):
    """A graph, or a builder's argument, that cannot be."""


class GraphIndexError(GraphError, IndexError):
    """An edge that names a node outside its range."""


class GraphNameError(GraphError, KeyError):
    """A name that no graph, or several, have."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class ShapeError(GraphAttnError, ValueError):
    """A tensor whose shape, dtype or device does not fit the graph or the other tensors."""


class PositionIndexError(ShapeError, IndexError):
    """A position, or another whole number, outside the table of parameters that it is looked up
    in.
    """


class OptionError(GraphAttnError, ValueError):
    """A number or a name that an option cannot take."""


class ArgumentNameError(OptionError, TypeError):
    """An argument that a function does not take; the message says what it takes instead."""


class LoaderError(GraphAttnError, ValueError):
    """A file that cannot be read as what it claims to be."""


class BackendError(GraphAttnError, RuntimeError):
    """A requested backend that cannot run; ``reasons`` says why, one line each."""

    def __init__(self, message: str, reasons: Iterable[str] = ()) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n  - ".join((message, *self.reasons)))


class ProcessError(GraphAttnError, RuntimeError):
    """Processes that share a graph and do not agree, or of which one no longer answers."""


class ExactnessError(GraphAttnError, AssertionError):
    """A measured difference above its bound; the report is the message."""


class ControlError(GraphAttnError, AssertionError):
    """A control of a study that is not what it claims to be."""


class MissingExtraError(GraphAttnError, ImportError):
    """A dependency that is not installed; the message says what to install."""


def not_installed(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The one line shown when a package that this one requires is missing; ``None`` if a module of
    our own is.
    """
    package = (error.name or "graphattn").partition(".")[0]
    if package == "graphattn":
        return None
    return MissingExtraError(
        f"this needs {package}, which is not installed: pip install {package.replace('_', '-')}"
    )


def need_extra(module: str, extra: str) -> "MissingExtraError":
    """The one line shown when an optional dependency is missing."""
    return MissingExtraError(f"this needs {module}: pip install 'graphattn[{extra}]'")
