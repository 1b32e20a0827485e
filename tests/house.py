"""How the core reads: what a line and a statement hold, and what the first call of a layer runs.

Nodes of the syntax tree count instead of lines, so that several plain lines cost no more than a
dense one.
"""

import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

import fresh_python

PACKAGE = Path(__file__).parent.parent / "graphattn"
CORE = ("graph", "graphs", "plans", "backends", "functional", "nn", "arguments", "errors")
NAMED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)

TRACE = """
import json, sys
import torch
import graphattn as ga
root = sys.argv[1]
def trace_of(call):
    functions, lines = set(), set()
    def trace(frame, event, argument):
        file = frame.f_code.co_filename
        if not file.startswith(root):
            return None
        if event == "call":
            functions.add((file, frame.f_code.co_qualname))
        if event == "line":
            lines.add((file, frame.f_lineno))
        return trace
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return sorted(functions), sorted(lines)
x, layer = torch.randn(64, 32), ga.nn.GraphAttention(32, 4)
layer(x, ga.graphs.sliding_window(64, 9, causal=True))
graph = ga.graphs.sliding_window(64, 11, causal=True)
first = trace_of(lambda: layer(x, graph))
layer(x, graph)
print(json.dumps([first, trace_of(lambda: layer(x, graph))]))
"""


def is_text(node):
    """True for a docstring, or another string that stands alone."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def nodes_of(tree):
    """All nodes but docstrings."""
    found = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not is_text(node):
            found.append(node)
            waiting.extend(ast.iter_child_nodes(node))
    return found


def is_packed(node):
    """True for ``a, b = x, y``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return isinstance(node.targets[0], ast.Tuple)


def counts_of(file):
    """Numbers of lines, tokens, statements and what they hold, in one file."""
    text = file.read_text("utf-8")
    tree = ast.parse(text)
    texts = [node for node in ast.walk(tree) if is_text(node)]
    docs = {line for node in texts for line in range(node.lineno, node.end_lineno + 1)}
    counts = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if number not in docs and line.strip() and not line.strip().startswith("#"):
            counts["lines"] += 1
            counts["wide"] += len(line) > 100
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        counts["tokens"] += token.type in NAMED and token.start[0] not in docs
    for node in nodes_of(tree):
        counts["statements"] += isinstance(node, ast.stmt)
        counts["conditional"] += isinstance(node, ast.IfExp)
        counts["packed"] += is_packed(node)
        if isinstance(node, ast.BoolOp):
            counts["boolean"] += len(node.values) - 1
    return counts


def density():
    """What a line and 1,000 statements of the core hold."""
    total = Counter()
    for room in CORE:
        path = PACKAGE / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            total += counts_of(file)
    found = {"tokens a line": total["tokens"] / total["lines"]}
    found["wide lines per 1,000"] = 1000 * total["wide"] / total["lines"]
    for name in ("conditional", "boolean", "packed"):
        found[f"{name} per 1,000 statements"] = 1000 * total[name] / total["statements"]
    return found


def path_of_a_call():
    """Files, functions and nodes that a first call of a layer runs, and nodes of a warm one."""
    found = fresh_python.run(TRACE, str(PACKAGE), expect=0).stdout
    (functions, first), (_, warm) = json.loads(found.splitlines()[-1])
    assert functions, f"no call of {PACKAGE}: another graphattn is imported; try PYTHONPATH"
    nodes = Counter()
    for file in {file for file, _ in first + warm}:
        for node in nodes_of(ast.parse(Path(file).read_text("utf-8"))):
            if hasattr(node, "lineno"):
                nodes[file, node.lineno] += 1
    return {
        "files": len({file for file, _ in functions}),
        "functions": len(functions),
        "nodes": sum(nodes[file, line] for file, line in first),
        "nodes of a warm call": sum(nodes[file, line] for file, line in warm),
    }
