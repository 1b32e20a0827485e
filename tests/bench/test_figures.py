"""``examples/benchmarks/figures.py``: the commands of the pages are taken, and it runs."""

import json
import re
import shlex
import sys
from pathlib import Path

import fresh_python
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "figures.py"
PAGES = [SCRIPT.parents[2] / "README.md", SCRIPT.parents[1] / "guide" / "speed.md", SCRIPT]
COMMANDS = [
    c
    for page in PAGES
    for c in re.findall(r"^    python (?:\S+/)?figures.py ([^#\n]*)", page.read_text("utf-8"), re.M)
]
CHECK = """
import figures, json, sys, torch
for line in json.loads(sys.argv[1]):
    options = figures.parser().parse_args(line)
    known = (*figures.SHAPES, *figures.GROUPS, "shapes", "choice", "goals")
    assert set(options.names.split(",")) <= set(known), line
    assert not options.peers or set(options.peers.split(",")) <= set(figures.PEERS), line
values = {name: {"forward": 1.0, "forward + backward": 1.0} for name in figures.AT_LEAST | figures.AT_MOST}
assert len(list(figures.judged(values))) == sum(g is not None for t in (figures.AT_LEAST, figures.AT_MOST)
                                                for goals in t.values() for g in goals)
assert {name.partition(":")[0] for name in values} <= {*figures.SHAPES, *figures.PAIRS, "the four",
                                                       "choice of 60, the worst over the best"}
for name, shape in figures.SHAPES.items():
    assert shape.make(150).num_edges > 0 and set(shape.rivals) <= set(figures.PEERS), name
problem = figures.AttentionCall(figures.SHAPES["swin"].make(196), 3, 7, 2)
peers = [figures.PEERS[name] for name in ("auto", "Swin by hand")]
for row in figures.measure([figures.Contender(peer, problem, 1) for peer in peers], repeats=1):
    assert not row.refused, row
"""


@pytest.mark.slow
def test_commands_goals_and_shapes_belong_together():
    assert len(COMMANDS) >= 6
    words = [shlex.split(line) for line in COMMANDS]
    fresh_python.run(
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}){CHECK}",
        json.dumps(words),
        expect=0,
    )


@pytest.mark.slow
def test_it_prints_a_table_with_every_peer_in_a_process_of_its_own(tmp_path):
    words = [
        "mesh",
        "--sizes",
        "42",
        "--peers",
        "PyG,SDPA",
        "--repeats",
        "2",
        "--json",
        str(tmp_path / "run.json"),
    ]
    done = fresh_python.run(None, *words, file=SCRIPT)
    assert "mesh: AttentionGraph(mesh_vertices()" in done.stdout, done.stderr
    for peer in ("auto", "PyG", "SDPA"):
        assert f"\n  {peer}, 1 thread " in done.stdout
        assert (
            f"peak memory of the first calls: {peer}, 1: " in done.stdout or sys.platform != "linux"
        )
    assert "mesh: multiple of the floor" in done.stdout
    assert (tmp_path / "run.json").stat().st_size > 1_000
