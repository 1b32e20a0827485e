"""Messages of the library in the words of the command line: ``--window 5`` for ``window=5``."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..errors import GraphAttnError

_VALUE = r"\([^()]*\)|'[^']*'|\"[^\"]*\"|\.\.\.|-?\w+(?:\.\w+)?"
_PHRASES = {
    "load_points, if it is a point cloud": "--k N or --radius X, if it is a point cloud",
    'from_edge_index(..., duplicates="merge")': 'duplicates="merge"',
    "keep it a rule, use contains(), tile_counts() or mask(), or ask for explicit(max_bytes=None)": (
        "a smaller --size or a sparser pattern can be saved"
    ),
    "sniff reads these only": "only these are read",
}


@contextmanager
def in_words(flags: Mapping[str, str], more: str = "") -> Iterator[None]:
    """Errors raised inside name these parameters by their flags; ``more`` is added to them."""
    try:
        yield
    except GraphAttnError as error:
        error.args = (as_typed(str(error), flags) + more, *error.args[1:])
        raise


def as_typed(message: str, flags: Mapping[str, str]) -> str:
    """``message`` with its named arguments as one would type them.

    Args:
        message: Of an error of the library.
        flags: The flag of each parameter.

    Example:
        >>> as_typed("pad must be True, or window=(7, 7)", {"pad": "--pad", "window": "--window"})
        '--pad must be True, or --window 7x7'
    """
    for phrase, typed in _PHRASES.items():
        message = message.replace(phrase, typed)
    names = "|".join(sorted(flags, key=len, reverse=True))
    if not names:
        return message
    message = re.sub(rf"^({names})(?= )", lambda found: flags[found[1]], message)
    return re.sub(rf"(?<![-\w])({names})=({_VALUE})", lambda found: _typed(flags[found[1]], found[2]), message)


def _typed(flag: str, text: str) -> str:
    if text in ("True", "False"):
        return flag if text == "True" else f"--no-{flag[2:]}"
    return f"{flag} {text.strip('()').strip(chr(39) + chr(34)).replace(', ', 'x').rstrip(',')}"
