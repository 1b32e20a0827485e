"""Help on patterns and files, from the builders' own signatures and docstrings."""

import re
import textwrap
from collections.abc import Callable
from typing import Any

from .docs import arguments, example, summary
from .files import readable, recipes
from .options import Option, options_of, untypable, usage
from .what import patterns

_EXAMPLES = (
    ("sliding_window --size 64 --window 5", ""),
    ("swin --size 56x56 --cell 7x7 --shift 3x3", ""),
    ("causal --size 4096", ""),
    ("bunny.ply --hops 2", "two steps along a mesh"),
    ("bunny.ply --k 16", "its vertices as points"),
    ("cloud.xyz --radius 0.1", ""),
    ("friends.csv --header", "a list of edges"),
    ("mask.npy --json", "for machines"),
)


def catalogue(command: str, width: int) -> str:
    """Every pattern and every kind of file, with its options and a line each, and examples."""
    parts = ["Patterns (N,N or NxN: a number for each item, or for each axis of a grid):"]
    for builder, names in patterns().items():
        parts.append(_entry(_titled(names), summary(builder), _typed(builder), width))
    parts.append("Files (their name or header says what they hold; --as overrides):")
    for recipe in recipes().values():
        for flag, builder in recipe.builders.items():
            title = f"{recipe.kind} {flag}".strip()
            said = f"{_held()[recipe.kind]}. {summary(builder) if builder in patterns() else ''}"
            parts.append(_entry(title, said, usage(recipe.options(builder)), width))
    column = max(len(words) for words, note in _EXAMPLES if note) + 2
    lines = [f"  {command} {words:<{column}}{f'# {note}' if note else ''}".rstrip() for words, note in _EXAMPLES]
    parts.append("\n".join(["Examples:", *lines]))
    parts.append(f"More on one pattern: {command} swin --help")
    return "\n" + "\n\n".join(parts) + "\n"


def page(command: str, name: str, builder: Callable[..., Any], width: int) -> str:
    """All about one pattern."""
    options = options_of(builder)
    parts = [
        _filled(f"Usage: {command} {name} {_typed(builder)} [OPTIONS]", width, "", "  "),
        _filled(summary(builder), width),
    ]
    if options:
        parts.append("\n".join(["Options of the pattern:", *(_row(option, width) for option in options)]))
    missing = [name for name in arguments(builder) if name not in {option.parameter for option in options}]
    if missing:
        parts.append(_filled(f"In Python only: {', '.join(missing)}.", width))
    shown = example(builder)
    if shown:
        parts.append("\n".join(["Example, in Python:", *(f"  {line}" for line in shown)]))
    parts.append(f"Options of the command: {command} --help")
    return "\n\n".join(parts) + "\n"


def _typed(builder: Callable[..., Any]) -> str:
    needed = untypable(builder)
    return f"(in Python only: {', '.join(needed)} cannot be typed)" if needed else usage(options_of(builder))


def _titled(names: list[str]) -> str:
    return names[0] + (f" (also: {', '.join(names[1:])})" if names[1:] else "")


def _entry(title: str, said: str, options: str, width: int) -> str:
    wrapped = _filled(options, width, "      ", "        ") if options else "      no options"
    return "\n".join([f"  {title}", _filled(said, width, "      "), wrapped])


def _row(option: Option, width: int) -> str:
    flags = ", ".join(option.flags)
    default = "" if option.required or option.default is None else f" (default: {_default(option)})"
    if option.reader.is_flag:
        flags = ", ".join(f"{flag}, --no-{flag[2:]}" for flag in option.flags)
    else:
        flags += f" {option.reader.metavar}"
    needed = " (needed)" if option.required else ""
    return f"  {flags}{needed}\n" + _filled(f"{option.help}{default}", width, "      ")


def _default(option: Option) -> str:
    value = option.default
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _filled(text: str, width: int, first: str = "", rest: str | None = None) -> str:
    whole = re.sub(r"(--[\w-]+) (?=[A-Z<\w|]+)", "\\1\0", text)  # an option and its value stay together
    wrapper = textwrap.TextWrapper(max(30, width), first, first if rest is None else rest)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.fill(whole).replace("\0", " ")


def _held() -> dict[str, str]:
    """Which files hold what."""
    endings = readable()
    meshes, lists = " ".join(endings["mesh"]), " ".join(kind for kind in endings["edges"] if kind != ".npy")
    return {
        "mesh": meshes,
        "points": f".xyz .pts, .npy of floats (N, d), .txt .csv with --as points, or the vertices of {meshes}",
        "edges": f"{lists}, .npy of integers (2, E): source and target of each edge",
        "mask": ".npy of bool (T, S): True where target (row) t may read source s",
    }
