"""Help on patterns and files: names from :mod:`.names`, options from the builders' own signatures and docstrings."""

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from .docs import arguments, example, summary
from .files import recipes
from .names import HELD, PATTERNS
from .options import Option, options_of, untypable, usage
from .what import patterns

_SHOWN = {
    "show": (
        "longformer",
        "'causal(9) - sliding_window(9, 3)'",
        "swin --size 8x12 --cell 4x4 --shift 2x2",
        "sliding_window --size 64 --window 5 --out window.png",
    ),
    "facts": ("sliding_window --size 100000 --window 257", "natten --size 64x48 --kernel 7"),
    "explain": ("causal --size 1000000", "swin --size 56x56 --cell 7x7 --heads 8 --kv-heads 2"),
    "verify": ("sliding_window --size 200 --window 9", "swin --size 6x10 --cell 3x5 --shift 1x2 --heads 6"),
}
_ALONE = {"audit": ("causal --size 8 --mask mask.npy", "natten --size 6x10 --kernel 5 --mask mine.npy")}
_FILES = (
    ("examples/files/ball.off --hops 2", "two steps along a mesh"),
    ("examples/files/ball.off --k 6", "its vertices as points"),
    ("examples/files/karate.csv --header", "a list of edges"),
)
_OF_KIND = {
    "mesh": ("examples/files/ball.off --hops 2", "examples/files/ball.off --faces --share vertex"),
    "points": ("cloud.npy --k 8", "cloud.npy --radius 0.2 --queries few.npy", "examples/files/ball.off --k 6"),
    "edges": ("examples/files/karate.csv --header", "examples/files/karate.csv --header --num-nodes 40"),
    "mask": ("mask.npy",),
}
#: Commands in Python that make the files named above, which no repository has.
MADE = {
    "points": (
        "import numpy as np; np.save('cloud.npy', np.random.rand(500, 3))",
        "import numpy as np; np.save('few.npy', np.random.rand(20, 3))",
    ),
    "mask": ("import numpy as np; np.save('mask.npy', np.tri(8, dtype=bool))",),
}


def contents(command: str, width: int) -> str:
    """What WHAT may be, in names alone, with examples and where to read more."""
    verb = command.split()[-1]
    shown = [(words, "") for words in _ALONE.get(verb, _SHOWN.get(verb, ()))]
    named = ", ".join(name + (f" ({', '.join(others)})" if others else "") for name, others in PATTERNS.items())
    kinds = [_filled(held, width, f"  {kind:<8}", " " * 10) for kind, held in HELD.items()]
    return _pages(
        "Patterns:\n" + _filled(named, width, "  "),
        _filled("Files, whose name or header says what they hold (--as overrides):", width) + "\n" + "\n".join(kinds),
        "Examples:\n" + _commands(command, (*shown, *(() if verb in _ALONE else _FILES))),
        _filled("(examples/ is a folder of graphattn's repository; a file of your own does as well)", width, "  "),
        "More:\n"
        + _commands(
            command,
            (("swin --help", "the options of a pattern"), ("points --help", "the options of a kind of file")),
        )
        + f"\n  {command.rsplit(' ', 1)[0]} patterns",
    )


def catalogue(width: int) -> str:
    """Every pattern and every kind of file, with a line and its options."""
    parts = ["Patterns (N,N or NxN: a number for each item, or for each axis of a grid):"]
    for builder, names in patterns().items():
        parts.append(_entry(_titled(names), summary(builder), _typed(builder), width))
    parts.append("Files (their name or header says what they hold; --as overrides):")
    for recipe in recipes().values():
        for flag, builder in recipe.builders.items():
            said = f"{HELD[recipe.kind]}. {summary(builder) if recipe.kind in ('mesh', 'points') else ''}"
            parts.append(_entry(f"{recipe.kind} {flag}".strip(), said, usage(recipe.options(builder)), width))
    parts.append("More on one of them: graphattn show swin --help, graphattn show points --help")
    return _pages(*parts)


def page(command: str, name: str, builder: Callable[..., Any], width: int) -> str:
    """All about one pattern."""
    options = options_of(builder)
    parts = [
        _filled(f"Usage: {command} {name} {_typed(builder)} [OPTIONS]", width, "", "  "),
        _filled(summary(builder), width),
    ]
    if options:
        parts.append(_rows("Options of the pattern:", options, width))
    missing = [name for name in arguments(builder) if name not in {option.parameter for option in options}]
    if missing:
        parts.append(_filled(f"In Python only: {', '.join(missing)}.", width))
    shown = example(builder)
    if shown:
        parts.append("\n".join(["Example, in Python:", *(f"  {line}" for line in shown)]))
    return _pages(*parts, f"Options of the command: {command} --help")


def file_page(command: str, kind: str, width: int) -> str:
    """All about one kind of file."""
    recipe = recipes()[kind]
    uses = [f"{command} FILE {flag}".rstrip() for flag in recipe.builders]
    parts = [
        "\n".join(f"{'Usage:' if i == 0 else '      '} {use} ... [OPTIONS]" for i, use in enumerate(uses)),
        "\n".join([_filled(f"{summary(recipe.loader)} FILE is:", width), *_listed(recipe.loader, width)]),
    ]
    of_file = {option.parameter for option in options_of(recipe.loader, ("path",))}
    common: dict[str, Option] = {}
    for flag, builder in recipe.builders.items():
        options = recipe.options(builder)
        own = [option for option in options if option.parameter not in of_file]
        common |= {option.parameter: option for option in options if option.parameter in of_file}
        said = summary(builder) if kind in ("mesh", "points") else ""
        if own:
            parts.append(_filled(f"{f'With {flag}' if flag else 'Its graph'}: {said}", width).rstrip())
            parts.append(_rows("", own, width).lstrip("\n"))
    parts.append(_rows("Options of the file:", common.values(), width))
    made = "".join(f'\n  python -c "{line}"' for line in MADE.get(kind, ()))
    shown = _commands(command, ((words, "") for words in _OF_KIND[kind]))
    return _pages(*parts, f"Examples:{made}\n{shown}", f"Options of the command: {command} --help")


def examples() -> list[str]:
    """Every command line that help recommends, with its command."""
    common = [words for words, _ in _FILES] + [words for kind in _OF_KIND.values() for words in kind]
    return [f"{verb} {words}" for verb, own in _SHOWN.items() for words in dict.fromkeys((*own, *common))]


def _pages(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _commands(command: str, lines: Iterable[tuple[str, str]]) -> str:
    rows = list(lines)
    column = max((len(words) for words, note in rows if note), default=0) + 2
    return "\n".join(f"  {command} {words:<{column}}{f'# {note}' if note else ''}".rstrip() for words, note in rows)


def _listed(loader: Callable[..., Any], width: int) -> list[str]:
    """What the loader's docstring says of its path, an item on a line."""
    items = re.split(r"(?:^| )\* ", arguments(loader)["path"])
    return [_filled(item, width, "  ", "    ") for item in items if item.strip() not in ("", "One of")]


def _typed(builder: Callable[..., Any]) -> str:
    needed = untypable(builder)
    return f"(in Python only: {', '.join(needed)} cannot be typed)" if needed else usage(options_of(builder))


def _titled(names: list[str]) -> str:
    return names[0] + (f" (also: {', '.join(names[1:])})" if names[1:] else "")


def _entry(title: str, said: str, options: str, width: int) -> str:
    wrapped = _filled(options, width, "      ", "        ") if options else "      no options"
    return "\n".join([f"  {title}", _filled(said, width, "      "), wrapped])


def _rows(title: str, options: Iterable[Option], width: int) -> str:
    return "\n".join([title, *(_row(option, width) for option in options)])


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
