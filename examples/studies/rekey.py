"""New keys for stored trials, where the code or a version changed and no result did.

``python examples/studies/rekey.py FOLDER`` trains a few of a study's trials again, those that take
least, and refuses if a number of one differs; then it gives every planned trial on disk the key that it has now.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from graphattn.study.comparison import Comparison, Trial
from graphattn.study.files import load
from graphattn.study.records import TRIALS, Records, as_json, plain, read_plan, write_plan
from graphattn.study.trials import trials_of
from graphattn.study.worker import tried

_OF_TRIAL = ("comparison", "arm", "positions", "budget", "seed", "draw")
_TIMES = ("cpu_s", "at", "elapsed_s", "key")


def place(trial: dict[str, Any]) -> tuple[Any, ...]:
    """What a trial is, whatever its key."""
    return tuple(trial[name] for name in _OF_TRIAL)


def changed(comparison: Comparison, trial: Trial, record: dict[str, Any]) -> list[str]:
    """Names of numbers that a trial has otherwise when it is trained again."""
    answer = tried(comparison, comparison.graphs_for(trial), trial)
    answer = plain(json.dumps(answer, default=as_json))
    shared = [name for name in answer if name in record and name not in _TIMES]
    return [name for name in shared if answer[name] != record[name]]


def rekey(folder: Path, again: int) -> str:
    """Check some trials, rewrite the keys of all, and say what was done."""
    plan = read_plan(folder)
    if plan is None:
        raise SystemExit(f"{folder} holds no study")
    study = load(folder / "study.py").study()
    named = study.named()
    for name, comparison in named.items():
        comparison.costs = plan["comparisons"][name]["costs"]
    trials = {
        place(vars(trial)): trial
        for comparison in named.values()
        for trial in trials_of(comparison, plan["seeds"], plan["first_seed"])
    }
    records = Records(folder)
    new_keys = {}
    known = []
    for planned in plan["trials"]:
        record = records.of_key.get(planned["key"])
        trial = trials.get(place(planned))
        if record is None or trial is None:
            continue
        new_keys[planned["key"]] = trial.key
        known.append((record, trial))
    known.sort(key=lambda pair: pair[0].get("cpu_s", 0.0))
    for record, trial in known[:: max(1, len(known) // (2 * max(1, again)))][:again]:
        names = changed(named[trial.comparison], trial, record)
        if names:
            raise SystemExit(f"{trial}: another {', '.join(names)}; train it again")
    kept = {key: record for key, record in records.of_key.items() if key in new_keys}
    (folder / TRIALS).unlink()
    fresh = Records(folder)
    for key, record in kept.items():
        fresh.append({**record, "key": new_keys[key]})
    for planned in plan["trials"]:
        planned["key"] = new_keys.get(planned["key"], planned["key"])
    plan["end"] = fresh.end
    write_plan(folder, plan)
    return f"{folder}: {len(kept)} trials have new keys; {min(again, len(known))} trained again"


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a study's folder, with its study.py")
    parser.add_argument("--again", type=int, default=3, help="trials that are trained again")
    given = parser.parse_args()
    print(rekey(given.folder, given.again))


if __name__ == "__main__":
    sys.exit(main())
