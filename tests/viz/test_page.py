"""The page in a browser: it draws, turns, picks and switches. Needs Chromium, of Debian's packages
for example.
"""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
import torch
from torch_geometric.data import Data

import graphattn as ga
from graphattn.graphs.catalogue.inputs import sphere, sphere_faces

BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)

#: Frames are drawn when they are asked for, so that their pixels can be read.
AT_ONCE = "window.requestAnimationFrame = (frame) => frame();"

SESSION = """
const picture = document.getElementById("picture"), object = document.getElementById("object");
const mouse = { pointerId: 1, pointerType: "mouse" };
const point = (name, x, y) => picture.dispatchEvent(new PointerEvent(name, { ...mouse, clientX: x, clientY: y }));
picture.setPointerCapture = () => {};
/** Colours, of every fourth pixel, that are not white. */
function pixels_() {
  const copy = document.createElement("canvas").getContext("2d");
  [copy.canvas.width, copy.canvas.height] = [object.width, object.height];
  copy.drawImage(object, 0, 0);
  const seen = copy.getImageData(0, 0, object.width, object.height).data, sum = [0, 0, 0, 0];
  for (let i = 0; i < seen.length; i += 16) {
    if (seen[i] + seen[i + 1] + seen[i + 2] < 750) [0, 1, 2].forEach((k) => { sum[k] += seen[i + k]; sum[3]++; });
  }
  return sum;
}
const drawn = () => new Promise((done) => setTimeout(done, 300)); // all of it, after a few; a graph is decoded
async function look(change) {
  change();
  await drawn();
  window.dispatchEvent(new Event("resize")); // pixels are there in the task that drew them
  return pixels_();
}
function choose(id, value) {
  const part = document.getElementById(id);
  part.value = value;
  part.dispatchEvent(new Event(id === "target" ? "input" : "change"));
}
function tick(ticked) {
  document.querySelectorAll("#legend input").forEach((box, i) => { box.checked = ticked[i]; });
  document.querySelector("#legend input").dispatchEvent(new Event("change", { bubbles: true }));
}
async function session() {
  await started;
  const box = picture.getBoundingClientRect(), [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  function drag(right) {
    point("pointerdown", x, y);
    point("pointermove", x + right, y);
    point("pointerup", x + right, y);
  }
  const told = { names: [...document.getElementById("color").options].map((each) => each.text) };
  told.size = [object.width, object.height];
  told.first = await look(() => window.dispatchEvent(new Event("resize")));
  told.turned = await look(() => drag(230));
  told.back = await look(() => drag(-230));
  for (let i = 0; i < 400; i++) { // until a node is there
    point("pointerdown", x + 12 * (i % 20) - 120, y + 12 * Math.floor(i / 20) - 120);
    point("pointerup", x + 12 * (i % 20) - 120, y + 12 * Math.floor(i / 20) - 120);
    told.picked = document.getElementById("words").textContent;
    if (told.picked.startsWith("Target")) break;
  }
  told.other = await look(() => choose("color", 1));
  told.legend = document.getElementById("legend").textContent;
  told.hidden = [];
  for (const ticked of [[false, true], [false, false], [true, true]]) told.hidden.push(await look(() => tick(ticked)));
  told.level = await look(() => choose("which", 1));
  told.some = await look(() => tick([false, true]));
  told.graph = document.getElementById("which").selectedOptions[0].text;
  return told;
}
const tell_ = (told) => { document.title = JSON.stringify(told); };
session().then(tell_, (error) => tell_(error.stack));
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_draws_turns_picks_and_switches(tmp_path):
    pos = sphere * torch.tensor([1.0, 2.0, 1.0])
    red = torch.tensor([[1.0, 0, 0]]).expand(48, 3)
    shape = Data(pos=pos, face=sphere_faces.T, color=red, y=(pos[:, 0] > 0).long())
    levels = ga.graphs.hierarchy(pos, ratio=0.5, graph=ga.graphs.knn(..., k=5))
    path = ga.viz.to_html(
        levels, tmp_path / "page.html", shape, prediction=1 - shape.y, names=["left", "right"]
    )
    html = path.read_text(encoding="utf-8").replace("<head>", f"<head><script>{AT_ONCE}</script>")
    path.write_text(html.replace("</body>", f"<script>{SESSION}</script></body>"), encoding="utf-8")
    options = (
        "--headless --no-sandbox --use-angle=swiftshader --enable-unsafe-swiftshader "
        "--window-size=400,500"
    )
    command = [BROWSER, *options.split(), f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1]))
    assert told["names"] == ["color", "y", "prediction", "error"]
    red, green, blue, count = told["first"]
    assert red > 3 * max(green, blue) > 0
    assert count > 0.05 * told["size"][0] * told["size"][1] / 4
    assert abs(told["turned"][3] - count) > 0.05 * count  # from the side it is as narrow as high
    assert told["back"] == told["first"]
    assert re.match(r"Target \d+ reads 5 sources", told["picked"])
    assert told["other"][1] > 0.5 * told["other"][0]  # labels are blue and orange
    assert told["legend"] == "leftright"
    right, none, every = told["hidden"]  # of faces: those of which no corner is of a hidden class
    assert right[0] > 1.5 * right[2]
    assert 0 < right[3] < 0.8 * told["other"][3]
    assert none[3] == 0
    assert every == told["other"]
    assert 0 < told["some"][3] < told["level"][3]  # of points
    assert told["graph"].startswith("level 1")
    assert 0 < told["level"][3] != told["other"][3]
