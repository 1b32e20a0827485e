"""Formulas of docstrings before and after their conversion: where they may break, and what stayed
TeX.
"""

import re

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENS = ("{", "(", "[", r"\{", r"\left", r"\begin", r"\langle", r"\lfloor", r"\lceil", r"\lVert")
_CLOSES = ("}", ")", "]", r"\}", r"\right", r"\end", r"\rangle", r"\rfloor", r"\rceil", r"\rVert")
_SPACES = (r"\quad", r"\qquad")
_RELATIONS = ("=", r"\approx", r"\propto", r"\leftarrow", r"\le", r"\ge")
_SHORT = 60  # characters of TeX that need no break but at wide spaces


def pieces(tex: str) -> list[str]:
    """Parts of a formula between which a line may break, none of them inside brackets.

    They end at wide spaces; those of a long formula begin at relations, too.
    """
    parts = [""]
    depth = 0
    long = len(tex) > _SHORT
    for token in _TOKEN.findall(tex.strip()):
        if token in _OPENS:
            depth += 1
        elif token in _CLOSES:
            depth -= 1
        if depth == 0 and token in _RELATIONS and long and parts[-1].strip():
            parts.append("")
        parts[-1] += token
        if depth == 0 and token in _SPACES:
            parts.append("")
    return [part for part in parts if part.strip()] or [tex]


def unknown(mathml: str) -> list[str]:
    """The TeX that a converter left in its MathML: what begins with a backslash in the text."""
    text = re.sub(r"<[^>]*>", " ", mathml)
    return re.findall(r"\\(?:[A-Za-z]+|\S)", text)


def not_enumerated(docstring: str) -> str:
    """The docstring, in which no description such as that of ``num_heads: H.`` begins a list."""
    number = r"(?:[A-Za-z]|[0-9]+|[ivxlcdm]+|[IVXLCDM]+)[.)](?:\s|$)"
    return re.sub(rf"(?m)(^ +\w+: |\A)(?={number})", r"\1\\", docstring)
