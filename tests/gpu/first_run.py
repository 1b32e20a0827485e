"""``make gpu``: from the working tree alone, on the python that is there, whatever it lacks beside torch and PyG.

Parts, each with its own budget, to be run in this order:

    make gpu GPU="--part correctness"    # every backend, layer and model against dense twins or the CPU
    make gpu GPU="--part again"          # what failed, one by one; compute-sanitizer; torch.compile; tests
    make gpu GPU="--part figures"        # times of ours for all shapes, then of the closest peers
    make gpu GPU="--part tune"           # constants of the kernels, and the counters of ncu

All of it is in gpu.json, whose parts are kept from call to call; at most 40 lines are printed, what failed last.
Nothing is installed, nothing is fetched. ``--device cpu`` rehearses a part on a machine without a GPU. Everything is
imported once, by ``fork_server.py``, which forks a child for each group of cases: one that dies, hangs, or loses its
CUDA context is told, and the next goes on after its case. What did not fit into the budget is listed.
"""

import argparse
import json
import os
import platform
import select
import shutil
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
SERVER = ROOT / "tests" / "gpu" / "fork_server.py"
PACKAGES = ("torch", "triton", "torch-geometric", "numpy", "scipy", "networkx", "numba", "pytest", "hypothesis")
BUDGETS = {"correctness": 270.0, "again": 150.0, "figures": 240.0, "tune": 120.0}  # seconds of each part
START_SECONDS = 180.0  # for the imports
CASE_SECONDS = 45.0  # for one case, twice
FIGURE_SECONDS = 40.0  # for a graph, and for a row of figures
COMPILE_SECONDS = 25.0  # for a peer to be compiled
MOST_LINES = 40
WIDE = 260  # columns of a printed line
COMPILES = "torch.compile"  # the group of cases that compile, for ``again`` alone
TESTED = ("tests/attention", "tests/graph", "tests/graphs", "tests/convert", "tests/bench")
#: What compute-sanitizer runs, and on which cases.
SANITIZED = {
    "memcheck": ("edges, float32, longformer", "edges, bfloat16, repeated_edges", "hub in pieces, float32",
                 "features, float32, hub", "additive, float32, isolated_targets", "dropped as on the CPU"),
    "racecheck": ("hub in pieces, float32", "additive, float32, hub"),
}  # fmt: skip
COUNTERS = (
    "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_sector_hit_rate.pct,"
    "sm__warps_active.avg.pct_of_peak_sustained_active,gpu__time_duration.sum"
)


def main() -> int:
    """0 if all that ran was right, or if there is no GPU."""
    parser = argparse.ArgumentParser(description="A run on a GPU in parts: exact, then timed; one JSON file.")
    parser.add_argument("--part", choices=tuple(BUDGETS), default="correctness")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of the part, from the first import")
    parser.add_argument("--case-seconds", type=float, default=CASE_SECONDS, metavar="SECONDS")
    parser.add_argument("--out", default="gpu.json", metavar="FILE")
    parser.add_argument("--cases", default="", metavar="NAMES", help="for again, separated by ';'; else what failed")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases, figures or variants with this in the name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th of them alone")
    return Run(parser.parse_args()).go()


class Run:
    """The parent: it imports nothing that may fail, and writes the file after every answer."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.start = time.monotonic()
        self.until = self.start + (asked.budget or BUDGETS[asked.part])
        self.out = Path(asked.out)
        self.file: dict[str, Any] = {"schema": 2, "parts": {}}
        if self.out.exists():
            before = json.loads(self.out.read_text(encoding="utf-8"))
            if before.get("schema") == 2:
                self.file = before
        self.found: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join(sys.argv),
            "commit": _said("git", "-C", str(ROOT), "rev-parse", "HEAD"),
            "changed": bool(_said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")),
            "device": asked.device,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in PACKAGES},
            "driver": _said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "complete": False,
        }
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.server = Server(self.out.with_suffix(".stderr"))

    def go(self) -> int:
        """The part; its lines are printed at the end."""
        try:
            return self._part()
        finally:
            self.server.stop()

    def _part(self) -> int:
        names = self.server.started(min(START_SECONDS, self.left()))
        if names is None:
            self._add_part()
            self.failures.append(f"torch, PyG or graphattn cannot be imported: {self.server.last_words()}")
            return self._end(1)
        about = self._first({"do": "about"}, 30.0)
        if "missing" in about:
            print(f"no CUDA device here ({about['missing']}); nothing was run. A rehearsal: --device cpu")
            return 0
        self._add_part()
        self.found |= {"imported_s": names["ready"], "first_job_s": self.seconds(), **about.get("about", {})}
        self.lines.append(
            f"{self.asked.part} on {self.found.get('gpu', '?')}: torch {names['torch']}, imported in {names['ready']} s"
        )
        getattr(self, f"_{self.asked.part}")(names)
        self.found["complete"] = True
        return self._end(int(bool(self.failures)))

    # --- parts

    def _correctness(self, names: dict[str, Any]) -> None:
        self._ceilings()
        chosen = self._chosen([case["name"] for case in names["cases"] if case["group"] != COMPILES])
        groups: dict[str, list[str]] = {}
        for case in names["cases"]:
            if case["name"] in chosen:
                groups.setdefault(case["group"], []).append(case["name"])
        self.found |= {"cases": [], "left_out": list(chosen)}
        for group, members in groups.items():
            self._run_cases(members, group)
        for case in [case for case in self.found["cases"] if not _right(case)]:
            if self.left() > 2 and "silent_s" not in case:  # which kernel it was: each is waited for
                job = {"do": "cases", "names": [case["name"]], "env": {"CUDA_LAUNCH_BLOCKING": "1"}}
                case["blocking"] = self._first(job, self.asked.case_seconds)
        self._tell_cases()

    def _again(self, names: dict[str, Any]) -> None:
        known = {case["name"]: case["group"] for case in names["cases"]}
        failed = [name.strip() for name in self.asked.cases.split(";") if name.strip()]
        if not failed:
            before = self.file["parts"].get("correctness", {}).get("cases", [])
            failed = [case["name"] for case in before if not _right(case)]
        for name in [name for name in failed if name not in known]:
            self.failures.append(f"{name}: there is no such case")
        chosen = [name for name in failed if name in known]
        self.found |= {"cases": [], "left_out": list(chosen)}
        for name in chosen:
            self._run_cases([name], "again", {"CUDA_LAUNCH_BLOCKING": "1"})
        self._sanitize()
        compiled = self._chosen([name for name, group in known.items() if group == COMPILES])
        self.found["left_out"] += compiled
        self._run_cases(compiled, COMPILES)
        self._tests()
        self._tell_cases()

    def _figures(self, names: dict[str, Any]) -> None:
        self._ceilings()
        copy = self.found.get("ceilings", {}).get("copy_gb_per_s", 0.0)
        chosen = self._chosen(names["figures"])
        jobs = [(name, "ours") for name in chosen]
        jobs += [(name, "peer") for name in chosen if names["peers"].get(name)]
        self.found |= {"figures": [], "peers": {}, "left_out": []}
        for name, who in jobs:
            if self.left() < 2:
                self.found["left_out"].append(f"{name}, {who}")
                continue
            job = {"do": "figure", "name": name, "who": who, "copy_gb_per_s": copy}
            last = self._figure(job, who)
            if last is not None and who == "peer":
                self.found["peers"][name] = last
            elif last is not None:
                self.failures.append(f"{name}: {last}")
        for name in chosen:
            rows = [_times(row) for row in self.found["figures"] if row["name"] == name]
            if name in self.found["peers"]:
                rows.append(f"peer: {self.found['peers'][name]}")
            if rows:
                self.lines.append(f"{name}: {'; '.join(rows)}")
        self._tell_left_out()

    def _figure(self, job: dict[str, Any], who: str) -> str | None:
        """What went wrong with the rows of one shape."""
        limit = Limit(FIGURE_SECONDS, self.until)
        stage = "its graph was made"
        last = None
        for answer in self.server.answers(self._of_device(job), limit):
            if "made" in answer:
                stage = "it was compiled"
                if who == "peer":
                    limit.seconds = COMPILE_SECONDS
            if "compiled" in answer:
                stage = "it was timed"
                limit.seconds = FIGURE_SECONDS
            if "row" in answer:
                self.found["figures"].append(answer["row"])
                stage = "the next was compiled"
                last = answer["row"].get("raised", last)
                self._write()
            last = answer.get("raised", last)
        ended = self.server.ended
        if ended != 0 and last is None:
            last = f"{self.server.how()} before {stage}"
        return last

    def _tune(self, names: dict[str, Any]) -> None:
        self.found |= {"rows": [], "left_out": []}
        for shape in names["tuned"]:
            for variant in self._chosen(names["variants"]):
                if self.left() < 2:
                    self.found["left_out"].append(f"{shape}, {variant}")
                    continue
                answer = self._first({"do": "tune", "shape": shape, "variant": variant}, FIGURE_SECONDS)
                row = answer.get("row", {"shape": shape, "variant": variant, **answer})
                self.found["rows"].append(row)
                self._write()
                if "row" not in answer:
                    self.failures.append(f"{shape}, {variant}: {answer.get('raised', '?')}")
                elif "training_ms" in row:
                    self.lines.append(f"{shape}, {variant}: {row['forward_ms']:.3g}, {row['training_ms']:.3g} ms")
        job = {"do": "tune", "shape": names["tuned"][0], "variant": "as it is"}
        words = ["ncu", "--clock-control", "none", "--target-processes", "all", "--metrics", COUNTERS,
                 "--kernel-name", "regex:forward|backward|edge_sums", "--launch-count", "6"]  # fmt: skip
        self.found["counters"] = self._around(words, job)
        self._tell_left_out()

    # --- what parts share

    def _ceilings(self) -> None:
        answer = self._first({"do": "ceilings"}, FIGURE_SECONDS)
        self.found |= {"first_answer_s": self.seconds(), **answer}
        if "ceilings" in answer:
            told = ", ".join(f"{name} {value:.4g}" for name, value in answer["ceilings"].items())
            self.lines.append(f"ceilings: {told}")
        else:
            self.failures.append(f"ceilings: {answer}")
        self._write()

    def _run_cases(self, names: list[str], group: str, env: dict[str, str] | None = None) -> None:
        """Cases of a group, in one child as long as it lives."""
        start, first = time.monotonic(), 0
        seconds = self.asked.case_seconds
        if group == COMPILES:
            seconds *= 2
        while first < len(names) and self.left() > 1:
            job = {"do": "cases", "names": names[first:], "env": env or {}}
            last = ""
            for answer in self.server.answers(self._of_device(job), Limit(seconds, self.until)):
                last = answer.get("raised", last)
                if "case" in answer:
                    self._add_case(answer["case"] | {"group": group})
                    first += 1
            lost_after_its_answer = self.server.ended == 3 and "context is lost" in last
            if first < len(names) and self.left() > 1 and not lost_after_its_answer:  # this case is why it ended
                how = f"{last} {self.server.how()}".strip()
                case = {"name": names[first], "group": group, "results": [{"ok": False, "raised": how}]}
                if self.server.silent_s is not None:
                    case["silent_s"] = self.server.silent_s
                self._add_case(case)
                first += 1
        ran = [case for case in self.found["cases"] if case["name"] in names]
        wrong = sum(not _right(case) for case in ran)
        if names:
            told = f"{group}: {len(ran) - wrong} right, {wrong} wrong, {len(names) - len(ran)} left out"
            self.lines.append(f"{told}, {time.monotonic() - start:.1f} s")

    def _add_case(self, case: dict[str, Any]) -> None:
        self.found["cases"].append(case)
        if case["name"] in self.found["left_out"]:
            self.found["left_out"].remove(case["name"])
        self._write()

    def _tell_cases(self) -> None:
        differ = sorted({f"{name}" for case in self.found["cases"] for name in case.get("differ", [])})
        if differ:
            self.lines.append(f"bits differ between two runs of: {', '.join(differ)}")
        self._tell_left_out()
        for case in self.found["cases"]:
            if not _right(case):
                self.failures.append(f"{case['name']}: {_why(case)}")

    def _tell_left_out(self) -> None:
        left_out = self.found["left_out"]
        if left_out:
            self.lines.append(f"left out, no time: {len(left_out)}, from {left_out[0]} on")

    def _sanitize(self) -> None:
        """Tiny cases under compute-sanitizer, without torch's cache of memory, which would hide what lies beside."""
        self.found["sanitizer"] = {}
        for tool, names in SANITIZED.items():
            words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
            job = {"do": "cases", "names": list(names), "env": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}
            result = self._around(words, job)
            self.found["sanitizer"][tool] = result
            self._write()
            told = result.get("left_out", f"status {result.get('status')}")
            self.lines.append(f"compute-sanitizer {tool}: {told}")
            if result.get("status", 0) != 0:
                summary = [line for line in result["said"].splitlines() if line.startswith("=========")]
                self.failures.append(f"compute-sanitizer {tool}: {' '.join(summary[:3] + summary[-1:])}")

    def _around(self, words: list[str], job: dict[str, Any]) -> dict[str, Any]:
        """What a tool says around a job in a process of its own."""
        if shutil.which(words[0]) is None:
            return {"left_out": f"{words[0]} is not installed"}
        if self.left() < 5:
            return {"left_out": "no time"}
        words = [*words, sys.executable, str(SERVER), "--direct", json.dumps(self._of_device(job))]
        return _limited(words, self.left())

    def _tests(self) -> None:
        """The tests that are marked for a GPU, where pytest is there."""
        if find_spec("pytest") is None:
            self.found["tests"] = {"left_out": "pytest is not installed"}
        elif self.asked.only:
            self.found["tests"] = {"left_out": "--only names other things"}
        elif self.left() < 5:
            self.found["tests"] = {"left_out": "no time"}
        else:
            words = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", *TESTED]
            self.found["tests"] = _limited(words, self.left())
        tests = self.found["tests"]
        last = tests.get("said", "").strip().splitlines()[-1:]
        self.lines.append(f"tests marked gpu: {tests.get('left_out', ' '.join(last))}")
        if tests.get("status", 0) not in (0, 5):
            self.failures += [line for line in tests["said"].splitlines() if line.startswith(("FAILED", "ERROR"))]
            self.failures.append(f"tests marked gpu: status {tests['status']}")

    def _chosen(self, names: list[str]) -> list[str]:
        return [name for name in names if self.asked.only in name][:: self.asked.every]

    def _of_device(self, job: dict[str, Any]) -> dict[str, Any]:
        return {**job, "device": self.asked.device}

    def _first(self, job: dict[str, Any], limit: float) -> dict[str, Any]:
        """All that a child says, as one answer; how it ended if it said nothing."""
        found: dict[str, Any] = {}
        for answer in self.server.answers(self._of_device(job), Limit(limit, self.until)):
            found |= answer
        if not found:
            found = {"raised": self.server.how()}
        return found

    def left(self) -> float:
        """Seconds until the end of the part."""
        return self.until - time.monotonic()

    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.start, 1)

    def _add_part(self) -> None:
        self.file["parts"][self.asked.part] = self.found

    def _end(self, status: int) -> int:
        self.found |= {"seconds": self.seconds(), "failures": self.failures}
        self._write()
        verdict = f"{len(self.failures)} failures; {self.seconds():.0f} s; all of it is in {self.out}"
        room = MOST_LINES - 1 - min(len(self.failures), MOST_LINES // 2)
        lines = self.lines
        if len(lines) > room:
            lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more lines in the file"]
        failures = self.failures
        room = MOST_LINES - 1 - len(lines)
        if len(failures) > room:
            failures = [f"{len(failures) - room + 1} more failures are in the file:", *failures[: room - 1]]
        for line in [*lines, verdict, *failures]:
            print(" ".join(line.split())[:WIDE])
        return status

    def _write(self) -> None:
        partial = self.out.with_suffix(".partial")
        partial.write_text(json.dumps(self.file, indent=1, default=str) + "\n", encoding="utf-8")
        partial.replace(self.out)


class Limit:
    """Seconds for the next answer of a child, never beyond the end of the part."""

    def __init__(self, seconds: float, until: float) -> None:
        self.seconds = seconds
        self.until = until

    def left(self) -> float:
        """Seconds from now."""
        return min(self.seconds, self.until - time.monotonic())


class Server:
    """The process that imports once, and the answers of the children that it forks."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self.process: subprocess.Popen[bytes] | None = None
        self.ended: int | None = None
        """How the last child ended: its exit status, a signal below 0; None if the server was lost with it."""
        self.silent_s: float | None = None
        """After how many seconds without an answer the last child was killed."""
        self._kept = b""
        self._lines: list[dict[str, Any]] = []

    def started(self, limit: float) -> dict[str, Any] | None:
        """The names of all that it can do, once everything is imported; None if it ends, or takes too long."""
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(SERVER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
        self._kept = b""
        self._lines = []
        answer = self._next(limit)
        if answer is None:
            self.stop()
        return answer

    def answers(self, job: dict[str, Any], limit: Limit) -> Iterator[dict[str, Any]]:
        """What the child of a job says; it is killed if it says nothing for as long as the limit."""
        self.ended = None
        self.silent_s = None
        if self.process is None and self.started(limit.until - time.monotonic()) is None:
            return
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()
        pid = 0
        while True:
            seconds = limit.left()
            answer = self._next(seconds)
            if answer is None and pid:
                self.silent_s = round(seconds, 1)
                os.killpg(pid, signal.SIGKILL)
                pid = 0
                answer = self._next(10.0)
                while answer is not None and "ended" not in answer:
                    answer = self._next(10.0)
            if answer is None:  # the server itself is gone or stuck
                self.stop()
                return
            if "ended" in answer:
                self.ended = answer["ended"]
                return
            if "pid" in answer:
                pid = answer["pid"]
                continue
            yield answer

    def _next(self, limit: float) -> dict[str, Any] | None:
        """The next answer; None at the end, or if none came in so many seconds."""
        until = time.monotonic() + limit
        while not self._lines:
            if self.process is None or self.process.stdout is None:
                return None
            seconds = until - time.monotonic()
            if seconds <= 0 or not select.select([self.process.stdout], [], [], min(seconds, 1e6))[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            *lines, self._kept = (self._kept + piece).split(b"\n")
            self._lines += [json.loads(line) for line in lines if line.startswith(b"{")]
        return self._lines.pop(0)

    def how(self) -> str:
        """How the last child ended."""
        if self.silent_s is not None:
            return f"hangs: killed after {self.silent_s} s without an answer"
        if self.ended is None:
            return "lost: the process that forks is gone"
        if self.ended < 0:
            return f"killed by signal {-self.ended}"
        return f"ended with status {self.ended}"

    def stop(self) -> None:
        """End it, and what it started."""
        if self.process is None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def last_words(self) -> str:
        """The end of what it wrote to its errors."""
        text = self.errors.read_text(encoding="utf-8", errors="replace") if self.errors.exists() else ""
        return " ".join(text.split())[-200:] or f"nothing was said in {START_SECONDS:.0f} s"


def _right(case: dict[str, Any]) -> bool:
    return not any(result["ok"] is False for result in case["results"])


def _why(case: dict[str, Any]) -> str:
    """Why a case failed, in a line."""
    result = next(result for result in case["results"] if result["ok"] is False)
    reasons = result.get("raised") or "; ".join(result.get("wrong", [])) or ", ".join(result.get("refused", []))
    if not reasons:
        reasons = ", ".join(f"{name} {value}" for name, value in result.items() if name != "ok")
    return f"{result.get('backend', '')} {reasons}".strip()


def _times(row: dict[str, Any]) -> str:
    """Of both passes; of forward, of the replay, and how many times the least."""
    if "training_ms" not in row:
        return f"{row['who']} raised"
    told = f"{row['who']} {row['training_ms']:.3g} ms"
    for name, word in (("forward_ms", "forward"), ("replay_ms", "replayed"), ("multiple_of_floor", "x the floor")):
        if name in row:
            told += f", {word} {row[name]:.3g}"
    return told


def _limited(words: list[str], seconds: float) -> dict[str, Any]:
    """The status of a program and what it said, or that it took too long; it is ended with what it started."""
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"left_out": "no time: it was not done in its share"}
    return {"status": process.returncode, "said": said[-6000:]}


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


if __name__ == "__main__":
    sys.exit(main())
