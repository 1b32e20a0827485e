"""The recipes of extending.md, followed in a copy of the package: what is added is taken up by
everything.
"""

import re
import shutil
from pathlib import Path

import fresh_python
import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(
    r"```python\n# (graphattn/\S+\.pyi?)\n(.*?)```",
    (ROOT / "examples" / "site" / "pages" / "extending.md").read_text("utf-8"),
    re.DOTALL,
)
TAKEN_UP = {
    "a backend": """
from graphattn.backends import rates
from graphattn.bench import calibrate
from graphattn.bench.peers import all_peers
assert "whole" in {c.name: c for c in ga.explain(graph).candidates} and "  whole: about" in str(ga.explain(graph))
assert "whole" in all_peers()
calibrate._milliseconds = lambda graph, backend, *more, **options: 1e-9 if backend == "whole" else 1.0
assert calibrate.calibrate()["whole"].keys() == {"call_ms", "training_factor", "pair"}
rates.keep(calibrate.calibrate(), "today")
assert ga.explain(graph).chosen == "whole", ga.explain(graph)
assert ga.attention(x, x, x, graph).shape == x.shape
report = ga.verify(graph, dtypes=(torch.float64,), backends=("whole",), gradients=False)
assert report.ok and any(row.backend == "whole" for row in report.rows), report
""",
    "a kind of graph": """
from graphattn.errors import GraphError
from graphattn.graph import DropEdges
none, half = DropEdges(graph, 0.0), DropEdges(graph, 0.5)
for backend in ("auto", "dense", "tiles", "edges", "message_passing"):
    assert torch.allclose(ga.attention(x, x, x, none, backend=backend), ga.attention(x, x, x, graph), atol=1e-6)
out, weights, _ = ga.attention(x, x, x, half, return_weights=True)
dropped = weights.alpha[:, 0] == 0
assert 0 < int(dropped.sum()) < graph.num_edges and weights.graph is graph
read = ga.attention(x, x, x, graph, torch.zeros(graph.num_edges, 1).masked_fill(dropped[:, None], -torch.inf))
assert torch.allclose(out, read, atol=1e-6)
block, y = ga.nn.TransformerBlock(8, 2), torch.randn(3, 7, 8)
assert torch.allclose(block(y, none), block(y, graph), atol=1e-6) and not torch.equal(block(y, half), block(y, graph))
bias = torch.randn(graph.num_edges, 2)
assert torch.allclose(ga.attention(x, x, x, none, bias), ga.attention(x, x, x, graph, bias), atol=1e-6)
layer = ga.nn.GraphAttention(8, 2)
expected, seen = layer(y, graph), []
layer.register_message_forward_hook(lambda *parts: seen.append(1))
assert torch.allclose(layer(y, none), expected, atol=1e-6) and seen
assert ga.nn.ALiBi(2)(half).shape == (graph.num_edges, 2)
try:
    ga.analysis.facts(half)
except GraphError as error:
    assert "pass the .graph that it drops edges of" in str(error), error
""",
    "a score": """
layer = ga.nn.GraphAttention(8, 2, score="manhattan")
only = {"dtypes": (torch.float64,), "backends": ("message_passing",), "gradients": False}
report = ga.verify(layer, graph, **only)
assert report.ok and "of your own" not in str(report), report
type(layer.score).dense = lambda self, query, key, edge_attr: torch.einsum("...thd,...shd->...hts", query, key)
assert not ga.verify(layer, graph, **only).ok
""",
    "a bias": """
assert "ParityBias" in dir(ga.nn)
bias = ga.nn.ParityBias(2)(graph)
assert bias.shape == (graph.num_edges, 2) and float(bias.sum()) == 2 * float(((graph.source - graph.target) % 2).sum())
assert ga.models.GPT(11, 8, 2, 1, score_bias=ga.nn.ParityBias(2))(torch.arange(7)).shape == (7, 11)
""",
    "a pattern": """
from click.testing import CliRunner
from graphattn.cli.app import app
from graphattn.graphs.expression import from_expression
from typer.main import get_command
made = ga.graphs.lookahead(12, 3)
assert made.contains(2, 5) and not made.contains(2, 1)
assert ga.graphs.lookahead(..., 3)(12).equals(made)
assert from_expression("lookahead(12, 3) & lookahead(12, 5)").equals(made)
assert "lookahead" in ga.graphs.BUILDERS and "lookahead" in dir(ga.graphs)
assert ga.graphs.zoo()["lookahead"].graph().num_nodes == 48 and ga.graphs.zoo()["lookahead"].family == "sequence"
ga.save(made, "made.json")
assert ga.load("made.json").equals(made)
told = CliRunner().invoke(get_command(app), ["show", "lookahead(12, 3)"])
assert told.exit_code == 0 and "lookahead(12, 3)" in told.output, told.output
from test_catalogue import SMALL
assert SMALL["lookahead"] == {"num_nodes": 48, "k": 3}
""",
    "a file format": """
import numpy as np
np.arange(6, dtype="<f4").tofile("two.raw")
assert ga.load("two.raw").pos.tolist() == [[0, 1, 2], [3, 4, 5]]
""",
    "a model": """
from every_model import MODELS, small
assert "Tagger" in dir(ga.models) and "tagger" in MODELS
model, inputs = small("tagger", dropout=0.1)
assert model(*inputs).shape == (2, 7, 3)
""",
}
BEGIN = """import sys
sys.path.insert(0, sys.argv[1])
import torch, graphattn as ga
assert ga.__file__.startswith(sys.argv[1]), ga.__file__
graph, x = ga.graphs.sliding_window(7, 3, causal=True), torch.randn(7, 2, 4)
"""


def follow(recipes: list[tuple[str, str]], root: Path) -> None:
    """Write the new files; add imports behind the last one of a file, and other lines at its end."""
    for name, code in recipes:
        path = root / name
        if path.exists():
            text = path.read_text("utf-8")
            end = len(text)
            if code.startswith("from"):
                imports = re.finditer(r"^from \..*\n", text, re.MULTILINE)
                end = [found.end() for found in imports][-1]
            code = text[:end] + code + text[end:]
        path.write_text(code, encoding="utf-8")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What went wrong with each recipe: nothing, or an error."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "graphattn", root / "graphattn", ignore=shutil.ignore_patterns("__pycache__")
    )
    follow(BLOCKS, root)
    run = "".join(
        f"try:\n    exec({code!r}, dict(globals()))\n    print({what!r}, 'done')\n"
        f"except BaseException:\n    import traceback; print({what!r}, traceback.format_exc()[-1500:])\n"
        for what, code in TAKEN_UP.items()
    )
    return fresh_python.run(
        BEGIN + run, str(root), cwd=root, env={"GRAPHATTN_CACHE": str(root)}, expect=0
    ).stdout


def test_each_recipe_is_a_new_file_and_a_line_of_an_init():
    files = [name for name, _ in BLOCKS if not (ROOT / name).exists()]
    lines = [(name, code) for name, code in BLOCKS if (ROOT / name).exists()]
    zoo = [(name, code) for name, code in lines if "/catalogue/" in name]
    assert len(files) == len(TAKEN_UP)
    assert all(code.count("\n") == 1 for _, code in lines)
    assert all(code.startswith("NAMED += ") for _, code in zoo)
    for file, (init, code) in zip(files, [line for line in lines if line not in zoo], strict=True):
        package = Path(init).parent
        assert Path(init).stem == "__init__"
        where = ".".join(Path(file).relative_to(package).with_suffix("").parts)
        assert where in code


@pytest.mark.slow
@pytest.mark.parametrize("what", TAKEN_UP)
def test_everything_takes_up(what, told):
    assert f"{what} done" in told, told
