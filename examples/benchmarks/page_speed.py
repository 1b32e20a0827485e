"""Frames per second of a turning page, in software: ``python examples/benchmarks/page_speed.py``. Needs Chromium."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

import graphattn as ga

BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
AT_ONCE = "window.requestAnimationFrame = (frame) => frame(); window.begun = performance.now();"
TURN = """
const picture = document.getElementById("picture"), object = document.getElementById("object");
picture.setPointerCapture = () => {};
const gl = object.getContext("webgl2"), one = new Uint8Array(4);
const point = (name, x) => picture.dispatchEvent(new PointerEvent(name, { clientX: x, clientY: 300, pointerId: 1 }));
point("pointerdown", 100);
const times = [];
for (let i = 0; i < 12; i++) {
  const start = performance.now();
  point("pointermove", 100 + 10 * i);
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, one); // waits until the frame is drawn
  times.push(performance.now() - start);
}
document.title = JSON.stringify({ times: times.slice(2), size: [object.width, object.height] });
"""


def torus(around: int, across: int) -> Data:
    """A mesh of ``2 * around * across`` faces."""
    u, v = torch.meshgrid(*(torch.arange(n) * 2 * np.pi / n for n in (around, across)), indexing="ij")
    pos = torch.stack(((1 + 0.4 * v.cos()) * u.cos(), (1 + 0.4 * v.cos()) * u.sin(), 0.4 * v.sin()), -1).reshape(-1, 3)
    at = torch.arange(around * across).reshape(around, across)
    right, up = at.roll(-1, 0), at.roll(-1, 1)
    faces = torch.cat((torch.stack((at, right, right.roll(-1, 1)), -1), torch.stack((at, right.roll(-1, 1), up), -1)))
    return Data(pos=pos, face=faces.reshape(-1, 3).T, y=(3 * u).sin().flatten())


def measure(shape: Data, folder: str) -> str:
    path = ga.viz.to_html(shape, f"{folder}/page.html")
    html = path.read_text(encoding="utf-8").replace("<head>", f"<head><script>{AT_ONCE}</script>")
    path.write_text(html.replace("</body>", f"<script>{TURN}</script></body>"), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    command += ["--window-size=1000,800", f"--user-data-dir={folder}/profile", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    told = json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1]))
    frame = float(np.median(told["times"]))
    size = "{} x {} pixels".format(*told["size"])
    held = f"page of {Path(path).stat().st_size / 1e6:.1f} MB"
    return f"{1000 / frame:6.1f} frames a second ({frame:.0f} ms, {size}), {held}"


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit("no Chromium here: apt-get install chromium")
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "20,000 faces": torus(200, 50),
        "200,000 faces": torus(500, 200),
        "1,000,000 points": Data(pos=torch.randn(1_000_000, 3, generator=generator)),
    }
    for name, shape in shapes.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print(f"{name:>17}: {measure(shape, folder)}", flush=True)
