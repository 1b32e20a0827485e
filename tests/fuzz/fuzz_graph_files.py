"""Broken files of saved graphs: each gives a graph or a LoaderError, soon.

``python tests/fuzz/fuzz_graph_files.py --seconds 60 --seed 0`` reads files until the time is over;
the same seed and number make the same file, ``--only NUMBER`` reads one.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from file_mutations import LARGEST, ON_BYTES

import graphattn as ga
from graphattn.errors import LoaderError

SECONDS = 20  # of processor time for a file
MIXED = ga.from_edge_index([[5, 0, 1], [2, 3, 2]], num_nodes=7) | ga.graphs.sliding_window(
    7, 3, causal=True
)
VALUES = [
    *(named.graph() for named in ga.graphs.zoo().values()),
    ga.PerHead((MIXED, ~MIXED)),
    [ga.graphs.sliding_window(..., 3, causal=True) | ga.graphs.global_tokens(..., (0,)), MIXED],
    ga.graphs.Relations(near=MIXED, far=ga.graphs.causal(7)),
    ga.from_edge_index(torch.arange(200).reshape(2, 100), num_nodes=200),
]


class TooLong(BaseException):
    """The time for a file is over."""


def _over(*_: Any) -> None:
    raise TooLong


def written(folder: Path) -> list[tuple[str, bytes]]:
    """Every value as JSON and as safetensors."""
    found = []
    for value in VALUES:
        for ending in (".json", ".safetensors"):
            ga.save(value, folder / f"graph{ending}")
            found.append((ending, (folder / f"graph{ending}").read_bytes()))
    return found


def wrong_with(
    seeds: list[tuple[str, bytes]], folder: Path, seed: int, number: int
) -> tuple[bool, str]:
    """Whether a file was taken, and what is wrong with how it was read."""
    pick = random.Random(f"{seed}, {number}")
    ending, data = pick.choice(seeds)
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        data = pick.choice(ON_BYTES)(data or b"\n", pick)[:LARGEST]
    path = folder / f"wrong{ending}"
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        ga.load(path, max_bytes=1 << 26)
        return True, ""
    except LoaderError as error:
        return False, "" if len(str(error)) < 2000 else f"a message of {len(str(error))} letters"
    except TooLong:
        return False, f"over {SECONDS} s of processor time"
    except Exception:
        return False, traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="read this one file")
    asked = parser.parse_args()
    signal.signal(signal.SIGVTALRM, _over)
    number, taken, failures, end = asked.only or 0, 0, 0, time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory(prefix="graphattn-fuzz-") as name:
        seeds = written(Path(name))
        while True:
            was_taken, wrong = wrong_with(seeds, Path(name), asked.seed, number)
            taken, failures, number = taken + was_taken, failures + bool(wrong), number + 1
            if wrong:
                print(f"FAILED --seed {asked.seed} --only {number - 1}: {wrong}", flush=True)
            if asked.only is not None or time.monotonic() > end:
                break
    print(
        f"saved graphs, seed {asked.seed}: {number:,} files read, {taken:,} taken, {failures} "
        "failures"
    )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
