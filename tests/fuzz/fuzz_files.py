"""Broken files for every reader, which gives something valid or a LoaderError, soon and in little
room.

``python tests/fuzz/fuzz_files.py --seconds 60 --seed 0`` reads files until the time is over and
``--files`` were read. A child process reads a block of them, so that one that dies, hangs or takes
too much memory is told and survived. The same seed and number make the same file: ``--only NUMBER``
reads one, in this process.
"""

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from file_mutations import mutated
from torch_geometric.data import Batch

from graphattn.convert.files import load_edges, load_mask, sniff
from graphattn.errors import LoaderError
from graphattn.shapes import load

SECONDS = 10  # of processor time for a file, all loaders together
MEMORY = 512 << 20  # bytes that reading a file may add to the address space
BLOCK = 2000  # files that a child reads


def valid_shape(shape: Any, nonfinite: bool = False) -> bool:
    """Coordinates are finite, corners are points, properties have rows; it goes into a batch and
    into a file.
    """
    pos, face, size = (
        shape.pos,
        shape.get("face", torch.zeros(3, 0, dtype=torch.int64)),
        len(shape.pos),
    )
    shaped = pos.ndim == 2 and size > 0 and face.dtype == torch.int64 and face.shape[:1] == (3,)
    ranged = bool(((face >= 0) & (face < size)).all())
    finite = nonfinite or bool(np.isfinite(pos.numpy()).all())
    return (
        shaped and ranged and finite and len(Batch.from_data_list([shape, shape]).pos) == 2 * size
    )


def valid_edges(edges: Any) -> bool:
    """Pairs of ids from 0, below the sizes where these are known."""
    pairs = ((edges.source, edges.num_sources), (edges.target, edges.num_targets))
    whole = all(
        x.dtype == np.int64 and x.ndim == 1 and int(x.min(initial=0)) >= 0 for x, _ in pairs
    )
    inside = all(size is None or int(x.max(initial=-1)) < size for x, size in pairs)
    return whole and inside and len(edges.source) == len(edges.target)


def valid_mask(mask: Any) -> bool:
    """bool (T, S) of bytes 0 and 1."""
    return mask.ndim == 2 and mask.dtype == np.bool_ and not bool((mask.view(np.uint8) > 1).any())


Call = tuple[str, Callable[[Any], Any], Callable[[Any], bool]]
CALLS: tuple[Call, ...] = (
    ("load", load, valid_shape),
    (
        "load, NaN",
        lambda path: load(path, allow_nonfinite=True),
        lambda shape: valid_shape(shape, True),
    ),
    ("load_edges", load_edges, valid_edges),
    (
        "load_edges, any ids",
        lambda path: load_edges(path, relabel=True, weights="ignore"),
        valid_edges,
    ),
    (
        "load_edges, names",
        lambda path: load_edges(path, header=True, weights="ignore"),
        valid_edges,
    ),
    ("load_edges, sizes", lambda path: load_edges(path, num_sources=5, num_targets=5), valid_edges),
    ("load_mask", load_mask, valid_mask),
    ("sniff", sniff, lambda kind: kind in ("points", "edges", "mask")),
)


def attempt(path: Path, calls: Sequence[Call] = CALLS) -> tuple[list[str], list[str]]:
    """Which loaders took a file, and what is wrong: a foreign error, or a result that is not
    valid.
    """
    taken, wrong = [], []
    for name, call, valid in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a reader has nothing to say but errors
                found = call(path)
            taken.append(name)
            if not valid(found):
                wrong.append(f"{name} gave {str(found)[:200]}")
        except LoaderError as error:
            if not str(error).strip() or len(str(error)) > 2000:
                wrong.append(f"{name}: a message of {len(str(error))} letters")
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}\n{where}")
    return taken, wrong


class Tally:
    """What a run found."""

    def __init__(self) -> None:
        self.files, self.taken, self.failures = 0, Counter[str](), list[dict[str, Any]]()

    def told(self) -> str:
        """A few lines for people."""
        taken = ", ".join(f"{name} {count:,}" for name, count in sorted(self.taken.items()))
        return f"{self.files:,} files read, {len(self.failures)} failures; taken: {taken}"


def _limited() -> None:
    """Memory and time of this process, from now on."""
    held = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _child(
    seed: int, numbers: Iterator[int], at: mmap.mmap, out: int, calls: Sequence[Call]
) -> None:
    _limited()
    with (
        tempfile.TemporaryDirectory(prefix="graphattn-fuzz-") as folder,
        os.fdopen(out, "w") as lines,
    ):
        for number in numbers:
            at[:8] = struct.pack("<q", number)
            # SIGPROF ends the process, wherever it hangs
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            ending, data = mutated(seed, number)
            path = Path(folder) / f"file{ending}"
            path.write_bytes(data)
            taken, wrong = attempt(path, calls)
            print(json.dumps([number, ending, taken, wrong]), file=lines, flush=bool(wrong))


def read_block(
    seed: int, first: int, count: int, tally: Tally, calls: Sequence[Call] = CALLS
) -> int:
    """Read files in a child; the number after the last that was read, or after the one that ended
    the child.
    """
    at = mmap.mmap(-1, 8)
    at[:8] = struct.pack("<q", first)
    inlet, outlet = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(inlet)
            _child(seed, iter(range(first, first + count)), at, outlet, calls)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(outlet)
    with os.fdopen(inlet) as lines:
        for line in lines:
            number, ending, taken, wrong = json.loads(line)
            tally.taken.update(taken)
            tally.failures += [{"number": number, "ending": ending, "what": what} for what in wrong]
    status = os.waitpid(process, 0)[1]
    if status == 0:
        tally.files += count
        return first + count
    number = struct.unpack("<q", at[:8])[0]
    code = os.waitstatus_to_exitcode(status)
    hang = (
        f"over {SECONDS} s of processor time"
        if code == -signal.SIGPROF
        else f"the process ended with {code}"
    )
    tally.failures.append({"number": number, "ending": mutated(seed, number)[0], "what": hang})
    tally.files += number + 1 - first
    return number + 1


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--files", type=int, default=0, help="at least so many, however long it takes"
    )
    parser.add_argument(
        "--only", type=int, metavar="NUMBER", help="read this one file, here, and keep it"
    )
    asked = parser.parse_args()
    if asked.only is not None:
        ending, data = mutated(asked.seed, asked.only)
        path = Path(tempfile.gettempdir()) / f"graphattn-fuzz-{asked.seed}-{asked.only}{ending}"
        path.write_bytes(data)
        taken, wrong = attempt(path)
        print(f"{path}, {len(data)} bytes; taken by {taken or 'none'}", *wrong, sep="\n")
        return bool(wrong)
    tally, number, end = Tally(), 0, time.monotonic() + asked.seconds
    while time.monotonic() < end or tally.files < asked.files:
        seen = len(tally.failures)
        number = read_block(asked.seed, number, BLOCK, tally)
        for failure in tally.failures[seen:]:
            print(
                f"FAILED --seed {asked.seed} --only {failure['number']} ({failure['ending']}): "
                f"{failure['what']}",
                flush=True,
            )
    print(
        f"files, seed {asked.seed}: {tally.told()}; limits: {SECONDS} s, {MEMORY >> 20} MiB more "
        "than at the start"
    )
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
