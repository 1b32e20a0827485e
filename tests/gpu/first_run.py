"""``make gpu``: from the working tree alone, on the python that is there, whatever it lacks beside torch and PyG.

The shapes that matter are timed beside their peers, everything that runs on CUDA is compared with its dense twin, and
one JSON file says how it went. Nothing is
installed, nothing is fetched. ``--device cpu`` is the same on a machine without a GPU, so that nothing but the device
is untried. A child process measures; one that dies, hangs, or loses its CUDA context is told, and the next goes on
after it. What did not fit into the budget is listed.
"""

import argparse
import json
import math
import os
import platform
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / folder) for folder in (".", "tests", "tests/gpu", "examples/benchmarks")]
PACKAGES = ("torch", "triton", "torch-geometric", "numpy", "scipy", "networkx", "numba", "pytest", "hypothesis")
BUDGET = 540.0  # seconds in all
SHARES = {
    "figures": 0.4,
    "cases": 0.8,
    "tests": 1.0,
}  # of the budget, by whose end each part must be done
CASE_SECONDS = 90.0  # for one case, which may compile
START_SECONDS = 120.0  # for a process to say its first word


def main() -> int:
    """0 if all that ran was right, or if there is no GPU."""
    parser = argparse.ArgumentParser(description="The first run on a GPU: exact, then timed; one JSON file.")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS")
    parser.add_argument("--out", default="gpu.json", metavar="FILE")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="cases whose names have this alone, no tests, no figures"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case alone")
    parser.add_argument("--child", choices=("about", "cases", "figures"), help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        sys.path[:0] = PATHS
        return {"about": _about, "cases": _cases, "figures": _figures}[asked.child](asked)
    return Run(asked).go()


class Run:
    """The parent: it imports nothing that may fail, and writes the file after every step."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.start = asked, time.monotonic()
        self.out = Path(asked.out)
        self.found: dict[str, Any] = {
            "schema": 1,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": _git("rev-parse", "HEAD"),
            "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "device": asked.device,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in PACKAGES},
            "driver": _said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "budget_s": asked.budget,
            "complete": False,
        }

    def go(self) -> int:
        """All parts in turn."""
        about = self._ask("about")
        if about is None:
            return self._end(1, "torch, PyG or graphattn cannot be imported: see above")
        if "missing" in about:
            print(f"no CUDA device here ({about['missing']}); nothing was run. A rehearsal: --device cpu")
            return 0
        self.found |= about
        if not self.asked.only:
            self._compare()
        self._measure()
        if not self.asked.only:
            self._tests()
        self.found["complete"] = True
        results = [result for case in self.found["cases"] for result in case["results"]]
        wrong = [case["name"] for case in self.found["cases"] if any(r["ok"] is False for r in case["results"])]
        right = sum(result["ok"] is True for result in results)
        self.found |= {"right": right, "wrong": wrong, "seconds": round(time.monotonic() - self.start, 1)}
        failed = bool(wrong) or self.found.get("tests", {}).get("status", 0) not in (0, 5)
        told = f"{right} results right, {len(wrong)} cases wrong, {len(self.found['left_out'])} cases left out"
        return self._end(int(failed), told)

    def _end(self, status: int, told: str) -> int:
        self._write()
        print(f"{told}; {time.monotonic() - self.start:.0f} s; written to {self.out}")
        return status

    def _write(self) -> None:
        partial = self.out.with_suffix(".partial")
        partial.write_text(json.dumps(self.found, indent=1, default=str) + "\n", encoding="utf-8")
        partial.replace(self.out)

    def _left(self, part: str) -> float:
        """Seconds until the end of a part."""
        return self.start + SHARES[part] * self.asked.budget - time.monotonic()

    def _child(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-u", __file__, "--child", what, "--device", self.asked.device, "--out", str(self.out)]
        words += ["--only", self.asked.only, "--every", str(self.asked.every), *options]
        return subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True)

    def _ask(self, what: str, *options: str) -> dict[str, Any] | None:
        """The one answer of a child."""
        child = self._child(what, *options)
        try:
            return next(_lines(child, START_SECONDS, 0.0, math.inf), None)
        finally:
            _stop(child)

    def _compare(self) -> None:
        """Our times beside the peers', shape after shape."""
        self.found["figures"] = []
        child = self._child("figures")
        for answer in _lines(child, START_SECONDS, math.inf, self.start + SHARES["figures"] * self.asked.budget):
            self.found["figures"].append(answer)
            times = (f"{row['who']} {row.get('training_ms', math.nan):.3g} ms" for row in answer["rows"])
            print(f"{answer['name']}, forward and backward: {', '.join(times)}", flush=True)
            self._write()
        _stop(child)

    def _measure(self) -> None:
        """Case after case; a child that is lost is replaced by one that starts behind its case."""
        self.found |= {"cases": [], "left_out": []}
        names, first = self.found.pop("case_names"), 0
        until = self.start + SHARES["cases"] * self.asked.budget
        while first < len(names) and time.monotonic() < until:
            child = self._child("cases", "--first", str(first))
            for answer in _lines(child, START_SECONDS + CASE_SECONDS, CASE_SECONDS, until):
                first += 1
                self._add(answer)
            late = time.monotonic() >= until
            _stop(child)
            if first < len(names) and not late and child.returncode != LOST_CONTEXT:  # this case is why it ended
                how = f"no answer: the process ended with {child.returncode}, or was ended after {CASE_SECONDS:.0f} s"
                self._add({"name": names[first], "results": [{"ok": False, "raised": how}]})
                first += 1
        self.found["left_out"] = names[first:]

    def _add(self, case: dict[str, Any]) -> None:
        self.found["cases"].append(case)
        verdict = {True: "ok", False: "WRONG", None: "-"}
        each = (f"{result.get('backend', '')} {verdict[result['ok']]}".strip() for result in case["results"])
        print(f"{case['name']}: {', '.join(each)}", flush=True)
        self._write()

    def _tests(self) -> None:
        """The tests that are marked for a GPU, where pytest is there."""
        words = [
            "-m",
            "pytest",
            "-m",
            "gpu",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "tests/attention",
            "tests/graph",
            "tests/graphs",
            "tests/convert",
            "tests/bench",
        ]
        if find_spec("pytest") is None or self._left("tests") < 5:
            self.found["tests"] = {"left_out": "no time" if find_spec("pytest") else "pytest is not installed"}
            return
        try:
            done = subprocess.run(
                [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=self._left("tests")
            )
            self.found["tests"] = {"status": done.returncode, "said": done.stdout[-3000:] + done.stderr[-1000:]}
        except subprocess.TimeoutExpired:
            self.found["tests"] = {"left_out": "no time: it was not done in its share"}
        self._write()


LOST_CONTEXT = 3  # a child ends with this after a CUDA error, which spoils all that would follow


def _lines(child: subprocess.Popen[bytes], first: float, later: float, until: float) -> Iterator[dict[str, Any]]:
    """What a child says, a JSON document a line, until it ends or is silent for too long, or its time is over."""
    assert child.stdout is not None
    kept, limit = b"", first
    while True:
        seconds = min(limit, until - time.monotonic())
        if seconds <= 0 or not select.select([child.stdout], [], [], min(seconds, 1e6))[0]:
            return
        piece = os.read(child.stdout.fileno(), 1 << 16)
        if not piece:
            return
        *lines, kept = (kept + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                limit = later
                yield json.loads(line)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, which it does if all is well; else end it and what it started."""
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _git(*words: str) -> str:
    return _said("git", "-C", str(ROOT), *words)


def _said(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _answer(found: dict[str, Any]) -> None:
    print(json.dumps(found, default=str), flush=True)


def _settle(device: str) -> None:
    """What a comparison needs: products in full float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    if device == "cpu":
        torch.set_num_threads(1)  # tensors are small


def _about(asked: argparse.Namespace) -> int:
    """What the machine is, and which cases there are."""
    import torch

    if torch.device(asked.device).type == "cuda" and not torch.cuda.is_available():
        _answer({"missing": f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'none'}"})
        return 0
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if torch.device(asked.device).type == "cuda":
        seen = torch.cuda.get_device_properties(asked.device)
        found |= {"gpu": seen.name, "gpu_bytes": seen.total_memory, "capability": f"{seen.major}.{seen.minor}"}
        found |= {"multiprocessors": seen.multi_processor_count, "bfloat16": torch.cuda.is_bf16_supported()}
    from gpu_cases import cases

    _answer({**found, "case_names": [case.name for case in _chosen(cases(), asked)]})
    return 0


def _chosen(found: list[Any], asked: argparse.Namespace) -> list[Any]:
    return [case for case in found if asked.only in case.name][:: asked.every]


def _cases(asked: argparse.Namespace) -> int:
    """Cases from the first on, an answer each."""
    import torch
    from gpu_cases import cases, raised

    _settle(asked.device)
    device = torch.empty(0, device=asked.device).device  # "cuda" is "cuda:0"
    for case in _chosen(cases(), asked)[asked.first :]:
        begin, lost = time.perf_counter(), False
        try:
            results = case.run(device)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        except Exception as error:
            results, lost = [{"ok": False, "raised": raised(error)}], "CUDA error" in str(error)
        _answer({"name": case.name, "seconds": round(time.perf_counter() - begin, 3), "results": results})
        if lost or any("CUDA error" in result.get("raised", "") for result in results):
            return LOST_CONTEXT
    return 0


def _figures(asked: argparse.Namespace) -> int:
    """The shapes of ``gpu_figures``, an answer each."""
    import torch
    from gpu_figures import figures

    torch.backends.cuda.matmul.allow_tf32 = True  # peers at their best
    for answer in figures(torch.empty(0, device=asked.device).device):
        _answer(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
