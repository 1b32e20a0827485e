"""New keys for stored trials, after a change of the code that trains which computes the same.

A trial's key is a hash of its data, model, graphs and budget, of versions, and of the statements of
the code that trains. Each stored key is computed again from the code of an older revision; if all
are, exactly, and some trials (those that take least) have the same numbers when they are trained
again, each trial is given the key of today's code, and the chain of hashes is made anew. The report
is written anew, as it names the last hash.

    python examples/studies/restamp.py examples/studies/recall --code 1bbbf817 --graphattn 0.1.0
"""

import argparse
import ast
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphattn.io.writing import replace_file
from graphattn.study import trials
from graphattn.study.laws import copies
from graphattn.study.network import syntax_of
from graphattn.study.page import report
from graphattn.study.pool import run_trial
from graphattn.study.records import TRIALS, Records, as_json, plain, read_plan, write_plan
from graphattn.study.run import load
from graphattn.versions import version_of

ROOM = "graphattn/study"
TIMES = ("cpu_s", "at", "elapsed_s", "key")


def text_at(revision: str, path: str) -> str:
    """A file as it was."""
    command = ["git", "show", f"{revision}:{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def versions_at(revision: str, graphattn: str) -> list[str | None]:
    """What :func:`graphattn.study.trials._versions` gave, with today's versions of the others."""
    named: dict[str, Any] = {}
    for node in ast.parse(text_at(revision, f"{ROOM}/trials.py")).body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            if name in ("_CODE", "_PACKAGES"):
                named[name] = ast.literal_eval(node.value)
    code = "\n".join(syntax_of(text_at(revision, f"{ROOM}/{name}")) for name in named["_CODE"])
    digest = hashlib.sha256(code.encode()).hexdigest()
    versions = {name: version_of(name) for name in named["_PACKAGES"]}
    if "graphattn" in versions:
        versions["graphattn"] = graphattn
    return [*versions.values(), digest]


def trials_by_place(study: Any, plan: dict[str, Any]) -> dict[tuple[Any, ...], Any]:
    """Every planned trial with its comparison, by what it is."""
    found = {}
    for comparison in study.by_name().values():
        for trial in trials.trials_of(comparison, plan["seeds"], plan.get("first_seed", 0)):
            found[place_of(vars(trial))] = (comparison, trial)
    return found


def place_of(trial: dict[str, Any]) -> tuple[Any, ...]:
    """What a trial is, in its study."""
    names = ("comparison", "arm", "positions", "examples", "steps", "budget", "seed", "draw")
    return tuple(trial[name] for name in names)


def numbers_that_differ(comparison: Any, trial: Any, record: dict[str, Any]) -> list[str]:
    """Names of numbers that a trial has otherwise when it is trained again."""
    answer = run_trial(comparison, comparison.graphs_for(trial), trial)
    answer = plain(json.dumps(answer, default=as_json))
    shared = [name for name in answer if name in record and name not in TIMES]
    return [name for name in shared if answer[name] != record[name]]


def restamp(folder: Path, old: list[str | None], again: int) -> int:
    """Give the trials of a folder today's keys; the number of those that were planned.

    Raises:
        SystemExit: If a stored key is not that of the older code, or a trial has other numbers.
    """
    plan = read_plan(folder)
    assert plan is not None
    study = load(folder / "study.py").study()
    new = trials_by_place(study, plan)
    now = trials._versions
    trials._versions = lambda: old
    try:
        before = {place: trial.key for place, (_, trial) in trials_by_place(study, plan).items()}
    finally:
        trials._versions = now
    wrong = [trial for trial in plan["trials"] if before[place_of(trial)] != trial["key"]]
    if wrong:
        sys.exit(f"{folder}: {len(wrong)} of {len(plan['trials'])} keys are of other code")
    records = Records(folder)
    if records.broken or not records.reach(plan.get("end")):
        sys.exit(f"{folder}: the chain of its trials is broken")
    key_of = {before[place]: trial.key for place, (_, trial) in new.items()}
    cheap = sorted(before, key=lambda place: records.of_key[before[place]].get("cpu_s", 0.0))
    for place in cheap[:: max(1, len(cheap) // (2 * max(1, again)))][:again]:
        comparison, trial = new[place]
        names = numbers_that_differ(comparison, trial, records.of_key[before[place]])
        if names:
            sys.exit(f"{folder}: {trial} has another {', '.join(names)}; train the study again")
    lines = []
    for line in (folder / TRIALS).read_text("utf-8").splitlines():
        record = json.loads(line)
        record["key"] = key_of.get(record.get("key"), record.get("key"))
        lines.append(record)
    write_chain(folder, lines)
    for trial in plan["trials"]:
        trial["key"] = key_of[trial["key"]]
    for name, comparison in study.by_name().items():  # what a plan of before lacks
        plan["comparisons"][name] |= copies(comparison)
    write_plan(folder, {**plan, "end": Records(folder).end})
    before_report = set(folder.iterdir())
    report(folder, study.summary, study.figure)
    for path in set(folder.iterdir()) - before_report:
        if path.is_file():
            path.unlink()  # a folder keeps the kinds of files that it had
    return len(plan["trials"])


def write_chain(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Write records with new hashes."""
    from graphattn.study.records import _HASH, _hash

    last = ""
    texts = []
    for record in lines:
        record.pop(_HASH, None)
        last = _hash(last, record)
        texts.append(json.dumps({**record, _HASH: last}))
    text = "".join(f"{line}\n" for line in texts)
    replace_file(folder / TRIALS, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--code", required=True, help="the revision that trained them")
    parser.add_argument("--graphattn", default=version_of("graphattn"), help="its version")
    parser.add_argument("--again", type=int, default=1, help="trials that are trained again")
    given = parser.parse_args()
    versions = versions_at(given.code, given.graphattn)
    for one in given.folder:
        print(f"{one}: {restamp(one, versions, given.again)} keys")
