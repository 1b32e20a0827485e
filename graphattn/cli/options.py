"""The parameters of a builder or a loader as options of the command line, from its own signature."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from ..errors import GraphAttnError, OptionError
from .docs import arguments
from .values import Reader, reader

SIZES = ("num_nodes", "size", "num_targets")  # the first that a builder needs is also called --size
_ALIASES = {"r": "--radius"}  # a name that says more than the parameter's letter


@dataclass(frozen=True)
class Option:
    """One parameter as an option."""

    parameter: str
    flags: tuple[str, ...]  # the first is the one that help shows
    reader: Reader
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def usage(self) -> str:
        """``--window N``, in brackets if it may be left out."""
        if self.reader.is_flag:
            shown = self.flags[0] if self.default is not True else _negated(self.flags[0])
        else:
            shown = f"{self.flags[0]} {self.reader.metavar}"
        return shown if self.required else f"[{shown}]"


def options_of(function: Callable[..., Any], without: Collection[str] = ()) -> tuple[Option, ...]:
    """The parameters of ``function`` that can be typed, except those named in ``without``."""
    hints, texts, signature = get_type_hints(function), arguments(function), inspect.signature(function).parameters
    sizes = [name for name, p in signature.items() if name in SIZES and p.default is p.empty][:1]
    mark = "x" if sizes and getattr(hints[sizes[0]], "__origin__", None) is tuple else ","
    found = []
    for name, parameter in signature.items():
        how = _tensor_reader(name) if _is_tensor(hints.get(name)) else reader(hints.get(name), mark)
        if name not in without and how is not None:
            flags = _flags(name, is_size=name in sizes)
            found.append(Option(name, flags, how, parameter.default, texts.get(name, "")))
    return tuple(found)


def untypable(function: Callable[..., Any]) -> list[str]:
    """Parameters without a default that no text can give: such a builder is for Python alone."""
    known = {option.parameter for option in options_of(function)}
    needed = inspect.signature(function).parameters.values()
    return [p.name for p in needed if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in known]


def usage(options: Iterable[Option]) -> str:
    """All options on one line, those that are needed first."""
    return " ".join(option.usage for option in sorted(options, key=lambda option: not option.required))


def parse(words: list[str], options: Iterable[Option], who: str, hint: str = "") -> dict[str, Any]:
    """The values of the options in ``words``, by parameter.

    Args:
        words: What stands after WHAT on the command line.
        options: What may stand there.
        who: What takes the options, for messages.
        hint: A sentence for the message about an option that is not among them.

    Raises:
        OptionError: If an option is unknown, missing, given twice, or its text is no such value.
    """
    options = tuple(options)
    takes = f"{who} takes {usage(options) or 'no options'}"
    by_flag = {flag: (option, True) for option in options for flag in option.flags}
    by_flag |= {_negated(flag): (o, False) for o in options if o.reader.is_flag for flag in o.flags}
    values: dict[str, Any] = {}
    queue = list(words)
    while queue:
        flag, has_text, text = queue.pop(0).partition("=")
        if flag not in by_flag:
            raise OptionError(f"{_unknown(flag, by_flag)}{hint}; {takes}")
        option, positive = by_flag[flag]
        if option.parameter in values:
            raise OptionError(f"{flag} is given twice")
        if not has_text and queue and positive and _is_text(queue[0], option.reader):
            has_text, text = "=", queue.pop(0)
        values[option.parameter] = _value(flag, text if has_text else None, option.reader, positive)
    missing = [option.usage for option in options if option.required and option.parameter not in values]
    if missing:
        raise OptionError(f"{who} needs {' and '.join(missing)}; {takes}")
    return values


def _value(flag: str, text: str | None, how: Reader, positive: bool) -> Any:
    if text is None:
        if how.needs_text:
            raise OptionError(f"{flag} needs a value: {how.expected}")
        return positive
    if not positive:
        raise OptionError(f"{flag} takes no value, got {text!r}")
    try:
        return how.read(text)
    except GraphAttnError:
        raise
    except ValueError:
        raise OptionError(f"{flag} must be {how.expected}, got {text!r}") from None


def _is_text(word: str, how: Reader) -> bool:
    """Whether the next word belongs to the option; a flag claims only words that it can read."""
    if not how.is_flag:
        return not word.startswith("--")
    try:
        how.read(word)
    except ValueError:
        return False
    return True


def _unknown(flag: str, known: Collection[str]) -> str:
    if not flag.startswith("-"):
        return f"unexpected {flag!r}: options begin with --"
    close = difflib.get_close_matches(flag, known, 1, 0.7)
    return f"no option {flag}" + (f" (did you mean {close[0]}?)" if close else "")


def _flags(name: str, is_size: bool) -> tuple[str, ...]:
    own = f"--{name.replace('_', '-')}"
    own = f"--graph{own[1:]}" if own in taken() else own
    first = "--size" if is_size else _ALIASES.get(name, own)
    return tuple(dict.fromkeys((first, own)))


def _negated(flag: str) -> str:
    return f"--no-{flag[2:]}"


@cache
def taken() -> frozenset[str]:
    """Options of the commands themselves; a parameter of the same name gets ``--graph-`` in front."""
    from typer.main import get_command

    from .app import app

    group: Any = get_command(app)
    return frozenset(flag for command in group.commands.values() for p in command.params for flag in p.opts)


def _is_tensor(hint: Any) -> bool:
    from torch import Tensor

    return hint is Tensor or Tensor in get_args(hint)


def _tensor_reader(name: str) -> Reader:
    from .loading import TENSORS

    return TENSORS.get(name) or Reader("N,N,..", "whole numbers such as 0,0,1", _numbers)


def _numbers(text: str) -> Any:
    import torch

    return torch.tensor([int(part) for part in text.split(",")], dtype=torch.int64)
