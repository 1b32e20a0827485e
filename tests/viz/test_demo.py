"""``python examples/demo``: what it prints, what it writes, and when it fails."""

import re
from html.parser import HTMLParser
from pathlib import Path

import fresh_python
import pytest

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "examples" / "demo"
WRONG = """
import sys; sys.path.insert(0, {demo!r}); sys.argv = ["demo", "--page", {page!r}, "--only", "extra"]
import torch, graphattn as ga, play
from scene import Scene, scene

@scene("Two nodes read each other")
def extra_wrong():
    '''A claim that is not true.'''
    graph = ga.graphs.causal(2)
    claim = graph.equals(graph.reverse())
    return Scene(graph, torch.eye(2), claim, target=1)

@scene("It breaks")
def extra_broken():
    '''No graph at all.'''
    graph = ga.graphs.causal(-1)
    return Scene(graph, torch.eye(2), True, target=1)

sys.exit(play.main())
"""


class Links(HTMLParser):
    """Every address that a page would load or lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found += [
            value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")
        ]


def test_the_demo_writes_a_page_that_stands_alone(tmp_path):
    page = tmp_path / "deep" / "page.html"
    done = fresh_python.run(None, "--only", "digit neigh", "--page", str(page), file=DEMO, expect=0)
    lines = done.stdout.splitlines()
    assert lines[-1] == str(page)
    assert lines[0].startswith("[1/1] digit neighbourhood: exact")
    assert "1 of 1 scenes" in lines[-2]
    html = page.read_text(encoding="utf-8")
    links = Links(html).found
    # a card; the graph for wide screens and for narrow ones; weights
    assert sum(link.startswith("data:image/webp;base64,") for link in links) == 4
    assert page.stat().st_size < 150_000  # of all seven less than 1 MB
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"@import|url\(", html)
    assert html.count("EXACT: outputs") == 2  # a summary and a report
    assert "<details open" not in html
    assert html.index("<img") < html.index("<table")
    assert "grid_neighbourhood" in html


SNIPPETS = """
import sys; sys.path.insert(0, {demo!r})
import scenes
from page import COMMON
from scene import SCRIPTS

verified = "print(ga.verify(layer, scene.graph))"  # the demo itself does it to every scene
assert verified in COMMON
for script in SCRIPTS:
    if script.name == "digit cells":
        open("program.py", "w").write(script.code + chr(10) + COMMON)
        continue
    shown = {{}}
    coarser = script.code.replace("step=8", "step=40").replace("target=1415", "target=3")  # to take seconds
    exec(coarser + chr(10) + COMMON.replace(verified, ""), shown)
    assert shown["scene"].claim, script.name
    assert str(shown["output"].shape[0]) == str(shown["scene"].graph.num_targets)
    print(script.name, "ran")
"""


def test_every_snippet_on_the_page_runs_as_it_is_shown(tmp_path):
    script = tmp_path / "snippets.py"
    script.write_text(SNIPPETS.format(demo=str(DEMO)), encoding="utf-8")
    done = fresh_python.run(file=script, cwd=tmp_path, expect=0)
    assert len(re.findall(r"^[a-z ]+ ran$", done.stdout, re.MULTILINE)) == 6
    (tmp_path / "examples").symlink_to(DEMO.parent)
    program = (tmp_path / "program.py").read_text(encoding="utf-8")
    assert "\nEXACT: outputs" in fresh_python.run(program, cwd=tmp_path, expect=0).stdout
    assert {path.name for path in tmp_path.glob("*.png")} == {"graph.png", "weights.png"}


def test_a_false_claim_or_a_broken_scene_fails_the_demo(tmp_path):
    page = tmp_path / "page.html"
    script = tmp_path / "wrong.py"
    script.write_text(WRONG.format(demo=str(DEMO), page=str(page)), encoding="utf-8")
    done = fresh_python.run(file=script, expect=1)
    assert "CLAIM FAILS" in done.stdout
    assert "claim DOES NOT HOLD" in done.stdout
    assert "extra broken: BROKE" in done.stdout
    assert "NOT everything is exact" in done.stdout
    html = page.read_text(encoding="utf-8")
    assert "CLAIM FAILS" in html
    assert "BROKE</span> extra broken: GraphError" in html


def test_no_such_scene_lists_those_there_are(tmp_path):
    done = fresh_python.run(None, "--only", "zebra", file=DEMO, expect=2)
    assert "there are: terrain mesh, terrain cloud, digit neighbourhood" in " ".join(
        done.stderr.split()
    )
