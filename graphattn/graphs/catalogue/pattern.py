"""One named pattern: a name from the literature and the code that builds it."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import GraphNameError
from ...graph import AttentionGraph
from ...graph.deferred.expression import function_of
from ..points.sampling.farthest import farthest_points
from ..points.voxels import voxel_ids
from . import inputs
from .papers import Paper, paper_of


@dataclass(frozen=True)
class Named:
    """A pattern as papers name it.

    Args:
        family: ``"sequence"``, ``"grid"``, ``"points"``, ``"mesh"`` or ``"network"``.
        name: As the literature writes it.
        line: A description in one line without a full stop.
        code: An expression of builders for a small graph; besides the names of
            :mod:`graphattn.graphs` it may use ``torch`` and the inputs of
            :mod:`graphattn.graphs.catalogue.inputs`.
        paper: Author and year, or ``""``.
        also: Other names that it is looked for by, separated by commas, or ``""``.
    """

    family: str
    name: str
    line: str
    code: str
    paper: str = ""
    also: str = ""

    @property
    def source(self) -> Paper | None:
        """The paper that it is from: authors, title and address; ``None`` for a common pattern."""
        return paper_of(self.paper, self.name)

    def graph(self) -> AttentionGraph:
        """The small graph that ``code`` builds."""
        return eval(self.code, self._names())  # our own constant text

    def _names(self) -> dict[str, Any]:
        """Names that the code may use: builders, inputs, and two functions of points."""
        names = {"torch": torch, "farthest_points": farthest_points, "voxel_ids": voxel_ids}
        for name in re.findall(r"\b[a-z_]+\b", self.code):
            if name in inputs.__all__:
                names[name] = getattr(inputs, name)
        for name in re.findall(r"\b[a-z_]+(?=\()", self.code):
            with suppress(KeyError):  # no builder: one of the above, or of Python
                names[name] = function_of(name)
        return names


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.strip().lower())


def names(patterns: Sequence[Named], name: str) -> list[Named]:
    """The patterns called ``name``, in full or in brackets: none, one, or several."""
    matches = [pattern for pattern in patterns if _plain(pattern.name) == _plain(name)]
    return matches or [
        pattern
        for pattern in patterns
        if _plain(name) in map(_plain, re.findall(r"\((.*?)\)", pattern.name))
    ]


def close_to(patterns: Sequence[Named], name: str) -> list[str]:
    """Up to three names that contain ``name``, share words with it, or are spelt like it."""
    by_name = {_plain(pattern.name): pattern.name for pattern in patterns}
    inside = []
    if name.strip():
        inside = [full for plain, full in by_name.items() if _plain(name) in plain]
    near = [by_name[plain] for plain in difflib.get_close_matches(_plain(name), by_name, 3)]
    return list(dict.fromkeys(inside + _sharing_words(patterns, name) + near))[:3]


def _sharing_words(patterns: Sequence[Named], name: str) -> list[str]:
    """Names that share words with ``name``, also in their other names; first those of rare words."""
    words = {pattern.name: _words(f"{pattern.name} {pattern.also}") for pattern in patterns}
    counts = Counter(word for group in words.values() for word in group)
    weights = {
        full_name: sum(1 / counts[word] for word in group & _words(name))
        for full_name, group in words.items()
    }
    # a word in a tenth of all patterns is no evidence
    candidates = [full_name for full_name, weight in weights.items() if weight > 10 / len(words)]
    return sorted(candidates, key=lambda full_name: -weights[full_name])


def _words(text: str) -> set[str]:
    """The words of a text, of which plurals are the same as singulars."""
    return {word.removesuffix("s") for word in re.findall(r"[a-z0-9]{3,}", text.lower())}


def find(patterns: Sequence[Named], name: str) -> Named:
    """The pattern of that name.

    Raises:
        GraphNameError: If there is none, or several; the message lists the closest.
    """
    matches = names(patterns, str(name))
    if len(matches) == 1:
        return matches[0]
    close = [pattern.name for pattern in matches] or close_to(patterns, str(name))
    if close:
        hint = f"did you mean {' or '.join(map(repr, close))}?"
    else:
        hint = "print(graphattn.graphs.zoo()) lists them"
    raise GraphNameError(f"no pattern is called {name!r}; {hint}")


def table(patterns: Sequence[Named]) -> str:
    """A line for each pattern, under the name of its family."""
    width = max(len(pattern.name) for pattern in patterns)
    lines: list[str] = []
    family = ""
    for pattern in patterns:
        if pattern.family != family:
            family = pattern.family
            lines += [*([""] if lines else []), family]
        if pattern.paper:
            paper = f" ({pattern.paper})"
        else:
            paper = ""
        lines.append(f"  {pattern.name:<{width}}  {pattern.line}{paper}")
    return "\n".join(lines)
