"""Lines, time and memory of the seven models of the guide's page "Port a model", before and after:
``python ports.py``, two minutes on one thread; times are of the process alone.
"""

import ast
import inspect
import re
import time
from pathlib import Path
from textwrap import dedent

import torch

PAGE = Path(__file__).parent.parent / "guide" / "port_a_model.md"
TURNS = 5
LARGER = {  # the line of sizes of each model -> that of the benchmark
    "SAM": ("N = 6 ", "N = 64 "),
    "Graphormer": ("N, H, C = 20, 4, 32", "N, H, C = 400, 8, 128"),
    "AlphaFold": ("N, C, H, D = 8, 16, 4, 8", "N, C, H, D = 128, 128, 4, 32"),
    "Memorizing Transformers": (
        "N, M, H, D, K = 16, 128, 2, 32, 8 ",
        "N, M, H, D, K = 256, 4096, 8, 32, 32 ",
    ),
    "anemoi": ("N, H, D = 2, 4, 16 ", "N, H, D = 5, 16, 64 "),
    "Point Transformer": ("N, C = 60, 32", "N, C = 4096, 64"),
    "Informer": ("N, H, D = 32, 4, 16", "N, H, D = 2048, 8, 64"),
}


def blocks():
    """The code of each model, by its heading."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        yield name, re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)


def run(name, block):
    """The names that a block defines, with sizes of the benchmark."""
    small, large = LARGER[name]
    assert small in block
    names = {}
    exec(compile(block.replace(small, large), name, "exec"), names)
    return names


def num_lines(source):
    """Lines of code, without docstrings, blank lines and comments."""
    tree = ast.parse(dedent(source))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    code = ast.unparse(tree).split("\n")
    return len(code) - code.count("")


def lines(block, names):
    """Lines before, of the package's class or the block's own, and of all that replaces it."""
    parts = block.split("\n\n\n")
    before = "\n".join(part for part in parts if part.startswith(("def before", "class")))
    for module in ("theirs", "conv"):
        if module in names:
            before = inspect.getsource(type(names[module]))
    after = block.split("before", 1)[1].split("\n\n\n", 1)[1].rsplit("\n\n\n", 1)[0]
    return num_lines(before), num_lines(after)


def step(names, call):
    inputs = [x.detach().requires_grad_() for x in names["inputs"]]
    names[call](*inputs).square().sum().backward()


def peak(names, call):
    """The most bytes of tensors that a step holds at once, beside its inputs."""
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        step(names, call)
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = most = 0
    for event in events:
        held += event.nbytes()
        most = max(most, held)
    return most


def main():
    torch.set_num_threads(1)
    print("| | lines before | after | ms before | after | MB before | after |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, block in blocks():
        names = run(name, block)
        best = {"before": float("inf"), "after": float("inf")}
        for turn in range(TURNS):
            for call in best:
                start = time.process_time()
                step(names, call)
                if turn:
                    best[call] = min(best[call], 1e3 * (time.process_time() - start))
        row = [*lines(block, names), *(f"{ms:,.0f}" for ms in best.values())]
        row += [f"{peak(names, call) / 1e6:,.0f}" for call in best]
        print(f"| {name} | {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
