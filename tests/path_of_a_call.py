"""The path of a call: the functions that a first ``layer(x, graph)`` runs, and what each file holds.

``python tests/path_of_a_call.py --write`` puts both into the design page, between its two markers.
"""

import ast
import re
import sys
from pathlib import Path

import torch

import graphattn as ga

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "graphattn"
PAGE = ROOT / "examples" / "site" / "pages" / "design.md"
BLOCK = re.compile(r"(<!-- path of a call -->\n).*?(<!-- end of the path -->)", re.DOTALL)


def calls(call):
    """Depth, name and file of each function of the package, where ``call()`` first enters it."""
    found = {}
    depth = 0

    def trace(frame, event, argument):
        nonlocal depth
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(PACKAGE):
            return None
        if event == "call":
            key = (frame.f_code.co_qualname, file.relative_to(PACKAGE).as_posix())
            found.setdefault(key, depth)
            depth += 1
        if event == "return":
            depth -= 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return [(depth, name, file) for (name, file), depth in found.items()]


def first_sentence(file):
    """What the docstring of a file says first."""
    text = ast.get_docstring(ast.parse((PACKAGE / file).read_text("utf-8")))
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


def page():
    """The calls as a tree, and the files in order, as Markdown."""
    layer = ga.nn.GraphAttention(32, 4)
    x = torch.randn(64, 32)
    layer(x, ga.graphs.sliding_window(64, 9, causal=True))  # modules are loaded, and rates are read
    graph = ga.graphs.sliding_window(64, 11, causal=True)
    found = calls(lambda: layer(x, graph))
    if not found:
        sys.exit(f"graphattn is imported from {Path(ga.__file__).parent}: try PYTHONPATH={ROOT}")
    tree = []
    for depth, name, file in found:
        if "<listcomp>" not in name:
            tree.append(f"{'  ' * depth + name.replace('.<locals>', ''):<68} {file}")
    names = dict.fromkeys(file for *_, file in found)
    files = [f"* `{file}`: {first_sentence(file)}" for file in names]
    return "\n".join(["```", *tree, "```", "", *files, ""])


if __name__ == "__main__":
    text = page()
    if "--write" in sys.argv:
        PAGE.write_text(
            BLOCK.sub(lambda found: found[1] + text + found[2], PAGE.read_text("utf-8")),
            encoding="utf-8",
        )
    print(text)
