"""The tree of errors that the library raises, and its warnings.

A message names the argument, what was expected, what came, and what to try.
"""

import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

_is_quiet = ContextVar("_is_quiet", default=False)
_NOUNS = (
    "atoms bytes cells checks classes columns components edges epochs examples faces files graphs heads "
    "layers levels neighbours nodes pairs parameters points processes rows runs samples seconds "
    "seeds shapes sources steps targets tiles tokens trials values|entries|vertices"
)
_VERBS = {"are": "is", "were": "was", "have": "has", "do": "does"} | {
    verb: f"{verb}s" for verb in ("come", "differ", "fail", "hold", "lie", "need")
}
#: A one before a noun in the plural, with a verb that follows; not within a path, a name or a number,
#: nor the number of a node.
_ONE = re.compile(
    r"(?<![\w.,/+*^-])(?<!(?:layer|level|ource|arget) )(?<!\brow )1 "
    rf"({_NOUNS.replace(' ', '|')})( (?:{'|'.join(_VERBS)}))?\b(?![./_-]?\w)"
)


def singular(text: str) -> str:
    """A text in which a one has its noun, and a verb behind that, in the singular.

    What counts things may say "{count} edges are": all that is printed, raised or warned passes here.

    Example:
        >>> singular("1 edges are listed, of 1 vertices and 21 edges; layer 1 nodes")
        '1 edge is listed, of 1 vertex and 21 edges; layer 1 nodes'
    """

    def one(found: re.Match[str]) -> str:
        noun, verb = found.groups(default="")
        for plural, ending in (("ices", "ex"), ("ies", "y"), ("sses", "ss"), ("s", "")):
            if noun.endswith(plural):
                noun = noun.removesuffix(plural) + ending
                break
        if verb:
            verb = f" {_VERBS[verb.strip()]}"
        return f"1 {noun}{verb}"

    return _ONE.sub(one, text)


class GraphAttnError(Exception):
    """The root of the tree."""

    def __init__(self, message: str = "") -> None:
        super().__init__(singular(message))


class GraphError(GraphAttnError, ValueError):
    """Raised for an invalid graph or builder argument."""


class GraphIndexError(GraphError, IndexError):
    """Raised for an edge whose node index is out of range."""


class GraphNameError(GraphError, KeyError):
    """Raised for a name that no graph has, or several have."""

    __str__ = Exception.__str__  # KeyError shows the repr of a message


class ShapeError(GraphAttnError, ValueError):
    """Raised for a tensor whose shape, dtype or device does not fit the graph or other tensors."""


class PositionIndexError(ShapeError, IndexError):
    """Raised for a position, or another index, outside its table of parameters."""


class OptionError(GraphAttnError, ValueError):
    """Raised for an invalid value of an option."""


class ArgumentNameError(OptionError, TypeError):
    """Raised for an argument that a function lacks; the message names the one to use instead."""


class LoaderError(GraphAttnError, ValueError):
    """Raised for a file whose content does not match its format."""


class LabelError(LoaderError):
    """Raised for a file without the label asked for.

    Args:
        message: What was expected and what came, and what to try.
        found: The message without what to try.
    """

    def __init__(self, message: str, found: str = "") -> None:
        self.found = found
        super().__init__(message)


class BackendError(GraphAttnError, RuntimeError):
    """Raised if a requested backend cannot run; ``reasons`` holds one line for each reason."""

    def __init__(self, message: str, reasons: Iterable[str] = ()) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n  - ".join((message, *self.reasons)))


class ProcessError(GraphAttnError, RuntimeError):
    """Raised if processes that share a graph disagree, or one does not respond."""


class ExactnessError(GraphAttnError, AssertionError):
    """Raised for a measured difference above its bound; the report is the message."""


class ControlError(GraphAttnError, AssertionError):
    """Raised for a control of a study that fails its own check."""


class MissingExtraError(GraphAttnError, ImportError):
    """Raised for a dependency that is not installed; the message names what to install."""


class Interrupted(SystemExit):
    """Raised where a signal ends a training; the status is 128 and the signal's number."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(128 + number)
        self.words = words

    def __str__(self) -> str:
        return self.words


def not_installed(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error for a missing package that this one requires; ``None`` if a module of ours is."""
    if error.name is None:
        return None
    package = error.name.partition(".")[0]
    if package in ("", "graphattn"):
        return None
    return MissingExtraError(
        f"this needs {package}, which is not installed: pip install {package.replace('_', '-')}"
    )


def need_extra(module: str, extra: str) -> "MissingExtraError":
    """The error for a missing optional dependency."""
    return MissingExtraError(f"this needs {module}: pip install 'graphattn[{extra}]'")


@contextmanager
def without_warnings() -> Iterator[None]:
    """Leave out warnings about graphs that are made to be compared, in this thread."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def warn(text: str) -> None:
    """Warn at the caller's line, the first outside this package and torch."""
    if _is_quiet.get():
        return
    frame = sys._getframe()
    level = 1
    while frame.f_back is not None and _package_of(frame) in (__package__, "torch"):
        frame = frame.f_back
        level += 1
    warnings.warn(singular(text), stacklevel=level)


def _package_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
