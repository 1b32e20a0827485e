"""The time to the first picture of a page, and its frames per second, in software: needs Chromium.

``python examples/benchmarks/page_speed.py``
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

import graphattn as ga

BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
TURN = """
const drawn = [], whole = painterOf; // milliseconds from the begin of loading to each picture
painterOf = (canvas) => {
  const painter = whole(canvas), draw = painter.draw, gl = canvas.getContext("webgl2");
  painter.draw = (...view) => {
    const more = draw(...view);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits until the frame is drawn
    drawn.push(performance.now());
    if (!more && drawn.length < 30) turnOn(drawn.length);
    if (drawn.length === 30) fetch("http://127.0.0.1:PORT", { method: "POST", body: JSON.stringify(drawn) });
    return more;
  };
  return painter;
};
function turnOn(i) {
  const picture = document.getElementById("picture");
  picture.setPointerCapture = () => {};
  const point = (name, x) => picture.dispatchEvent(new PointerEvent(name, { clientX: x, clientY: 300, pointerId: 1 }));
  setTimeout(() => { point("pointerdown", 100); point("pointermove", 100 + 10 * i); });
}
"""


def torus(around: int, across: int) -> Data:
    """A mesh of ``2 * around * across`` faces."""
    u, v = torch.meshgrid(
        *(torch.arange(n) * 2 * np.pi / n for n in (around, across)), indexing="ij"
    )
    pos = torch.stack(
        ((1 + 0.4 * v.cos()) * u.cos(), (1 + 0.4 * v.cos()) * u.sin(), 0.4 * v.sin()), -1
    ).reshape(-1, 3)
    at = torch.arange(around * across).reshape(around, across)
    right, up = at.roll(-1, 0), at.roll(-1, 1)
    faces = torch.cat(
        (
            torch.stack((at, right, right.roll(-1, 1)), -1),
            torch.stack((at, right.roll(-1, 1), up), -1),
        )
    )
    return Data(pos=pos, face=faces.reshape(-1, 3).T, y=(3 * u).sin().flatten())


def measure(shape: Data, folder: str) -> str:
    """The size of the page, milliseconds to the first picture and to the whole, and those of a
    frame while it turns.
    """
    told: list[list[float]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    listening = threading.Thread(target=server.handle_request)
    listening.start()
    path = ga.viz.to_html(shape, f"{folder}/page.html")
    held = f"{path.stat().st_size / 1e6:.1f} MB"
    script = TURN.replace("PORT", str(server.server_port))
    start = "const started ="
    html = path.read_text(encoding="utf-8")
    assert start in html
    path.write_text(html.replace(start, script + start), encoding="utf-8")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
    ]
    command += [
        "--window-size=1000,800",
        f"--user-data-dir={folder}/profile",
        "--remote-debugging-port=0",
    ]
    browser = subprocess.Popen([*command, Path(path).as_uri()], stderr=subprocess.DEVNULL)
    listening.join(200)
    browser.terminate()
    browser.wait()
    server.server_close()
    (times,) = told
    frame = float(np.median(np.diff(times[-20:])))
    return (
        f"{held}, first picture after {times[0]:.0f} ms, all after {times[1]:.0f} ms, a frame "
        f"{frame:.0f} ms"
    )


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit("no Chromium here: apt-get install chromium")
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "20,000 faces": torus(200, 50),
        "200,000 faces": torus(500, 200),
        "1,500,000 points": Data(
            pos=torch.randn(1_500_000, 3, generator=generator),
            color=torch.rand(1_500_000, 3, generator=generator),
            y=torch.randint(6, (1_500_000,), generator=generator),
        ),
    }
    for name, shape in shapes.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print(f"{name:>17}: {measure(shape, folder)}", flush=True)
