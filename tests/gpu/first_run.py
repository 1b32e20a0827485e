"""``make gpu``: from the working tree alone, on the python that is there, whatever it lacks beside
torch and PyG.

Parts, each with its own budget, to be run in this order:

    make gpu GPU="--part correctness"    # every backend, layer and model against dense twins or the CPU
    make gpu GPU="--part again"          # what failed, one by one; compute-sanitizer; torch.compile; tests
    make gpu GPU="--part figures"        # times of ours for all shapes, then of the closest peers
    make gpu GPU="--part tune"           # constants of the kernels, and the counters of ncu

All of it is in gpu.json, whose parts are kept from call to call; at most 40 lines are printed, what
failed last. Nothing is installed, nothing is fetched. ``--device cpu`` rehearses a part on a
machine without a GPU. Everything is imported once, by ``fork_server.py``, which forks a child for
each group of cases: one that dies, hangs, or loses its CUDA context is told, and the next goes on
after its case. What did not fit into the budget is listed.

A machine that is lent for a call keeps nothing. So write where it looks, and bring the parts
before:

    cp gpu.json "$OUT"; make gpu GPU="--part again --out $OUT/gpu.json"
"""

import argparse
import difflib
import itertools
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "tests" / "gpu" / "fork_server.py"
PACKAGES = (
    "torch",
    "triton",
    "torch-geometric",
    "numpy",
    "scipy",
    "networkx",
    "numba",
    "pytest",
    "hypothesis",
)
BUDGETS = {
    "correctness": 270.0,
    "again": 150.0,
    "figures": 240.0,
    "tune": 120.0,
}  # seconds of each part
START_SECONDS = 180.0  # for the imports
CASE_SECONDS = 45.0  # for one case, twice
FIGURE_SECONDS = 40.0  # for a graph, and for a row of figures
COMPILE_SECONDS = 25.0  # for a peer to be compiled
MOST_LINES = 40
SAME_NORM = 0.01  # of outputs in half precision, relative
WIDE = 260  # columns of a printed line
KEPT_SECONDS = 30.0  # of ``correctness``, once a case has failed, to run the failed ones again
COMPILES = "torch.compile"  # the group of cases that compile, for ``again`` alone
MOST_SANITIZED = 4  # failed cases under compute-sanitizer, beside the tiny ones
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
    """0 if all that ran was right, or if there is no GPU; 1 if something failed; 2 if the
    arguments are wrong."""
    parser = argparse.ArgumentParser(
        description="A run on a GPU in parts, exact, then timed; one JSON file.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    seconds = ", ".join(f"{part} {budget:.0f}" for part, budget in BUDGETS.items())

    def option(name: str, text: str, **rest: Any) -> None:
        parser.add_argument(name, help=text, **rest)

    option("--part", "correctness by default", choices=tuple(BUDGETS), default="correctness")
    option("--device", "cuda by default, or cpu for a rehearsal", default="cuda")
    option("--budget", f"of the part, with its imports: {seconds}", type=float, metavar="SECONDS")
    text = "after which a case that says nothing is killed: %(default)s"
    option("--case-seconds", text, type=float, default=CASE_SECONDS, metavar="SECONDS")
    option(
        "--out", "gpu.json by default; its other parts are kept", default="gpu.json", metavar="FILE"
    )
    text = "for again, separated by ';', as gpu.json has them; by default those that failed"
    option("--cases", text, default="", metavar="NAMES")
    text = "cases, figures or variants with this in their names; in again, of those that compile"
    option("--only", text, default="", metavar="WORDS")
    option("--every", "each N-th of them alone", type=int, default=1, metavar="N")
    asked = parser.parse_args()
    wrong = _wrong_arguments(asked)
    if wrong:
        parser.error(wrong)
    return Run(asked).go()


def _wrong_arguments(asked: argparse.Namespace) -> str:
    """What no run can begin with; found before a machine's time is spent."""
    for name in ("budget", "case_seconds", "every"):
        value = getattr(asked, name)
        if value is not None and not value > 0:
            return f"--{name.replace('_', '-')} must be above 0, got {value}"
    if asked.cases and asked.part != "again":
        return f"--cases is for --part again, got --part {asked.part}; choose others by --only"
    if asked.device.partition(":")[0] not in ("cuda", "cpu"):
        return f"--device must be cuda or cpu, got {asked.device}"
    out = Path(asked.out)
    if not out.parent.is_dir():
        return f"--out must be in a folder that exists, got {out}"
    if out.exists():
        try:
            before = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return f"--out must hold JSON, got {out} ({error}); remove it or name another"
        if not isinstance(before, dict):
            return f"--out must hold a JSON object, got {out}; remove it or name another"
    return ""


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
            "changed": bool(
                _said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
            ),
            "device": asked.device,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in PACKAGES},
            "driver": _said(
                "nvidia-smi",
                "--query-gpu=name,driver_version,memory.total",
                "--format=csv,noheader",
            ),
            "complete": False,
        }
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.server = Server(self.out.with_suffix(".stderr"))

    def go(self) -> int:
        """The part; its lines are printed at the end, though it be ended from outside."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return self._part()
        except KeyboardInterrupt:
            self.failures.append("ended from outside before its end")
            return self._end(1)
        finally:
            self.server.stop()

    def _part(self) -> int:
        names = self.server.started(min(START_SECONDS, self.left()))
        if names is None:
            self._add_part()
            self.failures.append(
                f"torch, PyG or graphattn cannot be imported: {self.server.last_words()}"
            )
            return self._end(1)
        about = self._first({"do": "about"}, 30.0)
        if "missing" in about:
            print(
                f"no CUDA device here ({about['missing']}); nothing was run. A rehearsal: --device cpu"
            )
            return 0
        self._add_part()
        if "about" not in about:
            self.failures.append(f"{self.asked.device} cannot be used: {about.get('raised', '?')}")
            return self._end(1)
        self.found |= {
            "imported_s": names["ready"],
            "first_job_s": self.seconds(),
            **about["about"],
        }
        self.lines.append(
            f"{self.asked.part} on {self.found.get('gpu', '?')}: torch {names['torch']}, imported in {names['ready']} s"
        )
        getattr(self, f"_{self.asked.part}")(names)
        self.found["complete"] = True
        return self._end(int(bool(self.failures)))

    # --- parts

    def _correctness(self, names: dict[str, Any]) -> None:
        self._ceilings()
        chosen = self._chosen(
            [case["name"] for case in names["cases"] if case["group"] != COMPILES]
        )
        kept = set(chosen)
        cases = [case for case in names["cases"] if case["name"] in kept]
        self.found |= {"cases": [], "left_out": list(chosen)}
        for group, members in itertools.groupby(cases, lambda case: str(case["group"])):
            self._run_cases([case["name"] for case in members], group, kept_s=KEPT_SECONDS)
        for case in [case for case in self.found["cases"] if not _right(case)]:
            if (
                self.left() > 2 and "silent_s" not in case
            ):  # which kernel it was: each is waited for
                job = {"do": "cases", "names": [case["name"]], "env": {"CUDA_LAUNCH_BLOCKING": "1"}}
                case["blocking"] = self._first(job, self.asked.case_seconds)
        self._tell_cases()

    def _again(self, names: dict[str, Any]) -> None:
        known = {case["name"]: case["group"] for case in names["cases"]}
        failed = [name.strip() for name in self.asked.cases.split(";") if name.strip()]
        if not failed:
            before = self.file["parts"].get("correctness", {}).get("cases", [])
            failed = [case["name"] for case in before if not _right(case)]
            if not before:
                self.lines.append(
                    f"no case failed: {self.out} has no part correctness; name some by --cases"
                )
        for name in [name for name in failed if name not in known]:
            close = difflib.get_close_matches(name, known, 3, 0.5)
            self.failures.append(
                f"--cases: there is no case {name!r}; the closest are {'; '.join(close) or 'none'}"
            )
        chosen = [name for name in dict.fromkeys(failed) if name in known]
        compiled = [name for name in chosen if known[name] == COMPILES]
        chosen = [name for name in chosen if known[name] != COMPILES]
        others = self._chosen([name for name, group in known.items() if group == COMPILES])
        compiled += [name for name in others if name not in compiled]
        self.found |= {"cases": [], "left_out": chosen + compiled}
        for name in chosen:
            self._run_cases([name], "again", {"CUDA_LAUNCH_BLOCKING": "1"})
        self._sanitize()
        self._run_cases(compiled, COMPILES)
        self._tests()
        self._tell_cases()

    def _figures(self, names: dict[str, Any]) -> None:
        self._ceilings()
        copy = self.found.get("ceilings", {}).get("copy_gb_per_s", 0.0)
        chosen = self._chosen(names["figures"])
        jobs = [(name, ["ours"]) for name in chosen]
        jobs += [(name, names["peers"][name]) for name in chosen if names["peers"].get(name)]
        self.found |= {"figures": [], "peers": {}, "left_out": []}
        for name, who in jobs:
            if self.left() < 2:
                self.found["left_out"].append(f"{name}, {who[0]}")
                continue
            for each in who:  # the next peer only if the one before it failed
                last = self._figure(
                    {"do": "figure", "name": name, "who": each, "copy_gb_per_s": copy}, each
                )
                if last is None or self.left() < 2:
                    break
                if each == "ours":
                    self.failures.append(f"{name}: {last}")
                else:
                    self.found["peers"].setdefault(name, {})[each] = last
        for name in chosen:
            rows = [
                row for row in self.found["figures"] if row["name"] == name and "raised" not in row
            ]
            told = [_times(row) for row in rows]
            told += [f"{peer}: {last}" for peer, last in self.found["peers"].get(name, {}).items()]
            if told:
                self.lines.append(f"{name}: {'; '.join(told)}")
            self.failures += _other_numbers(name, rows)
        self._tell_left_out()

    def _figure(self, job: dict[str, Any], who: str) -> str | None:
        """What went wrong with the rows of one shape."""
        limit = Limit(FIGURE_SECONDS, self.until)
        stage = "its graph was made"
        last = None
        for answer in self.server.answers(self._of_device(job), limit):
            if "made" in answer:
                stage = "it was compiled"
                if who != "ours":
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
        if self.server.ended != 0 and last is None:
            last = f"{self.server.how()} before {stage}"
        return last

    def _tune(self, names: dict[str, Any]) -> None:
        self.found |= {"rows": [], "left_out": []}
        for shape in names["tuned"]:
            for variant in self._chosen(names["variants"]):
                if self.left() < 2:
                    self.found["left_out"].append(f"{shape}, {variant}")
                    continue
                answer = self._first(
                    {"do": "tune", "shape": shape, "variant": variant}, FIGURE_SECONDS
                )
                row = answer.get("row", {"shape": shape, "variant": variant, **answer})
                self.found["rows"].append(row)
                self._write()
                if "row" not in answer:
                    self.failures.append(f"{shape}, {variant}: {answer.get('raised', '?')}")
                elif "training_ms" in row:
                    self.lines.append(
                        f"{shape}, {variant}: {row['forward_ms']:.3g}, {row['training_ms']:.3g} ms"
                    )
        job = {"do": "tune", "shape": names["tuned"][0], "variant": "as it is"}
        words = ["ncu", "--clock-control", "none", "--target-processes", "all", "--metrics", COUNTERS,
                 "--kernel-name", "regex:forward|backward|edge_sums", "--launch-count", "6"]  # fmt: skip
        counters = self._around(words, job)
        self.found["counters"] = counters
        told = counters.get("left_out", f"status {counters.get('status')}")
        self.lines.append(f"ncu: {told}")
        if counters.get("status", 0) != 0:
            self.failures.append(
                f"ncu: {' '.join(_marked(counters, '==ERROR==')) or counters['said'][-150:]}"
            )
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

    def _run_cases(
        self, names: list[str], group: str, env: dict[str, str] | None = None, kept_s: float = 0.0
    ) -> None:
        """Cases of a group, in one child as long as it lives; ``kept_s`` are left for those that
        fail."""
        start = time.monotonic()
        first = 0
        seconds = self.asked.case_seconds
        if group == COMPILES:
            seconds *= 2
        limit = Limit(seconds, self.until)

        def has_time() -> bool:
            if not all(_right(case) for case in self.found["cases"]):
                limit.until = self.until - kept_s
            return limit.until - time.monotonic() > 1

        while first < len(names) and has_time():
            job = {"do": "cases", "names": names[first:], "env": env or {}}
            last = ""
            for answer in self.server.answers(self._of_device(job), limit):
                last = answer.get("raised", last)
                if "case" in answer:
                    self._add_case(answer["case"] | {"group": group})
                    first += 1
                    has_time()
            lost_after_its_answer = self.server.ended == 3 and "context is lost" in last
            is_to_blame = not lost_after_its_answer
            if first < len(names) and has_time() and is_to_blame:
                how = f"{last} {self.server.how()}".strip()
                case = {
                    "name": names[first],
                    "group": group,
                    "results": [{"ok": False, "raised": how}],
                }
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
        differ = Counter(name for case in self.found["cases"] for name in case.get("differ", []))
        if differ:
            told = ", ".join(f"{name} in {count}" for name, count in sorted(differ.items()))
            self.lines.append(f"cases whose bits differ between two runs: {told}")
        self._tell_left_out()
        for case in self.found["cases"]:
            if not _right(case):
                self.failures.append(f"{case['name']}: {_why(case)}")

    def _tell_left_out(self) -> None:
        left_out = self.found["left_out"]
        if left_out:
            self.lines.append(f"left out, no time: {len(left_out)}, from {left_out[0]} on")

    def _sanitize(self) -> None:
        """Tiny cases under compute-sanitizer, without torch's cache of memory, which would hide
        what lies beside."""
        self.found["sanitizer"] = {}
        cases = [
            case for case in self.found["cases"] if not _right(case) and "silent_s" not in case
        ]
        runs = {tool: (tool, names) for tool, names in SANITIZED.items()}
        if cases:
            failed = tuple(case["name"] for case in cases[:MOST_SANITIZED])
            runs = {"memcheck of what failed": ("memcheck", failed), **runs}
        for title, (tool, names) in runs.items():
            words = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
            words += ["--target-processes", "all"]
            env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
            result = self._around(
                words, {"do": "cases", "names": names, "env": env}, self.left() / 2
            )
            self.found["sanitizer"][title] = result
            self._write()
            told = result.get("left_out", f"status {result.get('status')}")
            self.lines.append(f"compute-sanitizer, {title}: {told}")
            if result.get("status", 0) != 0:
                errors = _marked(result, "=========")
                last = " ".join(errors[:3] + errors[-1:]) or result["said"][-150:]
                self.failures.append(f"compute-sanitizer, {title}: {last}")

    def _around(
        self, words: list[str], job: dict[str, Any], most: float = float("inf")
    ) -> dict[str, Any]:
        """What a tool says around a job in a process of its own, in so many seconds at most."""
        if shutil.which(words[0]) is None:
            return {"left_out": f"{words[0]} is not installed"}
        if self.left() < 5:
            return {"left_out": "no time"}
        words = [*words, sys.executable, str(SERVER), "--direct", json.dumps(self._of_device(job))]
        return _limited(words, min(most, self.left()))

    def _tests(self) -> None:
        """The tests that are marked for a GPU, where pytest is there."""
        if find_spec("pytest") is None:
            self.found["tests"] = {"left_out": "pytest is not installed"}
        elif self.asked.only:
            self.found["tests"] = {"left_out": "--only names other things"}
        elif self.left() < 5:
            self.found["tests"] = {"left_out": "no time"}
        else:
            words = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"]
            words += _marked_tests()
            self.found["tests"] = _limited(words, self.left())
        tests = self.found["tests"]
        last = tests.get("said", "").strip().splitlines()[-1:]
        self.lines.append(f"tests marked gpu: {tests.get('left_out', ' '.join(last))}")
        if tests.get("status", 0) not in (0, 5):
            self.failures += [
                line for line in tests["said"].splitlines() if line.startswith(("FAILED", "ERROR"))
            ]
            self.failures.append(f"tests marked gpu: status {tests['status']}")

    def _chosen(self, names: list[str]) -> list[str]:
        chosen = [name for name in names if self.asked.only in name][:: self.asked.every]
        if not chosen and self.asked.part != "again":
            self.failures.append(
                f"--only: no name has {self.asked.only!r} in it; the first is {names[0]!r}"
            )
        return chosen

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
        verdict = (
            f"{len(self.failures)} failures; {self.seconds():.0f} s; all of it is in {self.out}"
        )
        room = MOST_LINES - 1 - min(len(self.failures), MOST_LINES // 2)
        lines = self.lines
        if len(lines) > room:
            lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more lines in the file"]
        failures = self.failures
        room = MOST_LINES - 1 - len(lines)
        if len(failures) > room:
            failures = [
                f"{len(failures) - room + 1} more failures are in the file:",
                *failures[: room - 1],
            ]
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
        """How the last child ended: its exit status, a signal below 0; None if the server was
        lost with it."""
        self.silent_s: float | None = None
        """After how many seconds without an answer the last child was killed."""
        self.child = 0
        """The process of the job that runs, and the number of its group; 0 if there is none."""
        self._kept = b""
        self._at_end = False
        self._lines: list[dict[str, Any]] = []

    def started(self, limit: float) -> dict[str, Any] | None:
        """The names of all that it can do, once everything is imported; None if it ends, or
        takes too long."""
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(SERVER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
        self._kept = b""
        self._at_end = False
        self._lines = []
        answer = self._next(limit)
        if answer is None:
            self.stop()
        return answer

    def answers(self, job: dict[str, Any], limit: Limit) -> Iterator[dict[str, Any]]:
        """What the child of a job says; it is killed if it says nothing for as long as the
        limit."""
        self.ended = None
        self.silent_s = None
        died_since = self.process is not None and self.process.poll() is not None
        if died_since:
            self.stop()
        if self.process is None and self.started(limit.until - time.monotonic()) is None:
            return
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()
        self.child = 0
        while True:
            seconds = limit.left()
            answer = self._next(seconds)
            if answer is None and self.child and not self._at_end:
                self.silent_s = round(seconds, 1)
                self._kill_child()
                answer = self._next(10.0)
                while answer is not None and "ended" not in answer:
                    answer = self._next(10.0)
            if answer is None:  # the server itself is gone or stuck
                self.stop()
                return
            if "ended" in answer:
                self.ended = answer["ended"]
                self.child = 0
                return
            if "pid" in answer:
                self.child = answer["pid"]
                continue
            yield answer

    def _kill_child(self) -> None:
        if self.child:
            with suppress(ProcessLookupError):  # it ended just now
                os.killpg(self.child, signal.SIGKILL)
        self.child = 0

    def _next(self, limit: float) -> dict[str, Any] | None:
        """The next answer; None at the end, or if none came in so many seconds."""
        until = time.monotonic() + limit
        while not self._lines:
            if self.process is None or self.process.stdout is None:
                return None
            seconds = until - time.monotonic()
            if (
                seconds <= 0
                or not select.select([self.process.stdout], [], [], min(seconds, 1e6))[0]
            ):
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                self._at_end = True
                return None
            *lines, self._kept = (self._kept + piece).split(b"\n")
            self._lines += [answer for answer in map(_answer, lines) if answer is not None]
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
        self._kill_child()
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
        text = ""
        if self.errors.exists():
            text = self.errors.read_text(encoding="utf-8", errors="replace")
        return " ".join(text.split())[-200:] or f"nothing was said in {START_SECONDS:.0f} s"


def _answer(line: bytes) -> dict[str, Any] | None:
    """A line of the server; None for what a library prints, whatever that begins with."""
    if not line.startswith(b"{"):
        return None
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _marked(result: dict[str, Any], mark: str) -> list[str]:
    return [line for line in result["marked"] if line.startswith(mark)]


def _marked_tests() -> list[str]:
    """Files with tests that need a GPU; others may need packages that the machine lacks."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "pytest.mark.gpu" in file.read_text(encoding="utf-8")]


def _other_numbers(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Whoever computes something else than ours, by the norm of the output: its time says
    nothing."""
    compared = [row for row in rows if "norm" in row and row["who"] != "SDPA, all pairs"]
    apart = [row for row in compared if not abs(row["norm"] / compared[0]["norm"] - 1) < SAME_NORM]
    return [
        f"{name}: {row['who']} has norm {row['norm']:.5g}, ours {compared[0]['norm']:.5g}"
        for row in apart
    ]


def _right(case: dict[str, Any]) -> bool:
    return not any(result["ok"] is False for result in case["results"])


def _why(case: dict[str, Any]) -> str:
    """Why a case failed, in a line."""
    result = next(result for result in case["results"] if result["ok"] is False)
    reasons = (
        result.get("raised")
        or "; ".join(result.get("wrong", []))
        or ", ".join(result.get("refused", []))
    )
    if not reasons:
        reasons = ", ".join(f"{name} {value}" for name, value in result.items() if name != "ok")
    return f"{result.get('backend', '')} {reasons}".strip()


def _times(row: dict[str, Any]) -> str:
    """Of both passes; of forward, of the replay, and how many times the least."""
    if "training_ms" not in row:
        return f"{row['who']} raised"
    told = f"{row['who']} {row['training_ms']:.3g} ms"
    for name, word in (
        ("forward_ms", "forward"),
        ("replay_ms", "replayed"),
        ("multiple_of_floor", "x the floor"),
    ):
        if name in row:
            told += f", {word} {row[name]:.3g}"
    return told


def _limited(words: list[str], seconds: float) -> dict[str, Any]:
    """The status of a program and what it said, or that it took too long; it is ended with what
    it started."""
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=max(1.0, seconds))
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"left_out": "no time: it was not done in its share"}
    marked = [
        line for line in said.splitlines() if line.startswith("==")
    ]  # as the tools of CUDA begin theirs
    return {
        "status": process.returncode,
        "said": said[-6000:],
        "marked": marked[:60] + marked[60:][-5:],
    }


def _said(*words: str) -> str:
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
