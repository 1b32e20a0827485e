"""D27 in small: whatever the bytes, a loader returns something valid or raises LoaderError, in
bounded time and memory.

``make fuzz`` reads 10^5 files and more.
"""

import contextlib
import time

import file_mutations
import fuzz_files
import numpy as np
import pytest
from file_mutations import mutated
from file_seeds import ENDINGS, PLY, SEEDS
from fuzz_files import Tally, attempt, read_block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphattn.convert.files import load_edges
from graphattn.errors import LoaderError
from graphattn.shapes import load


def test_every_seed_is_a_good_file(tmp_path):
    for number, (ending, data) in enumerate(SEEDS):
        path = tmp_path / f"{number}{ending}"
        path.write_bytes(data)
        taken, wrong = attempt(path)
        assert taken, f"seed {number}"
        assert not wrong


def test_only_loader_error_escapes(tmp_path):
    taken = 0
    for number in range(4 * len(SEEDS)):
        ending, data = mutated(0, number)
        path = tmp_path / f"fuzz{ending}"
        path.write_bytes(data)
        loaders, wrong = attempt(path)
        assert not wrong, f"fuzz_files.py --seed 0 --only {number}"
        taken += bool(loaders)
    assert taken > 15, "mutations that leave a good file reach further"


def test_a_name_of_a_megabyte_does_not_fill_the_message(tmp_path):
    path = tmp_path / "long.ply"
    name = b"n" * 60_000
    for part in (b"element vertex 4", b"list uchar int vertex_indices"):
        path.write_bytes(
            (PLY % b"binary_little_endian").replace(part, part.replace(part.split()[1], name))
            + bytes(60)
        )
        with pytest.raises(LoaderError) as error:
            load(path)
        assert len(str(error.value)) < 1500


def test_a_number_makes_the_same_file_every_time():
    assert [mutated(3, n) for n in range(40)] == [mutated(3, n) for n in range(40)]
    assert len({mutated(3, len(SEEDS) * n) for n in range(40)}) > 30
    assert all(
        len(data) <= 9 * file_mutations.LARGEST for _, data in (mutated(0, n) for n in range(400))
    )


def _hang(path):
    while True:
        pass


PLANTED = {
    "KeyError": lambda path: {}["no"],
    "RuntimeWarning": lambda path: np.float64(1e308) * 10,
    "MemoryError": lambda path: np.ones(2 * fuzz_files.MEMORY // 8),
    "over 1 s of processor time": _hang,
    "load gave nan": lambda path: np.nan,
}


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("what", PLANTED)
def test_the_fuzzer_sees_a_fault(what, monkeypatch):
    """One file of a block meets it; the others are read all the same."""
    monkeypatch.setattr(fuzz_files, "SECONDS", 1)
    victim = mutated(0, 3)[1]

    def load(path):
        return PLANTED[what](path) if path.read_bytes() == victim else 1.0

    tally, number = Tally(), 0
    while number < 6:
        number = read_block(
            0, number, 6 - number, tally, [("load", load, lambda found: found == 1.0)]
        )
    assert tally.files == 6
    assert [failure["number"] for failure in tally.failures] == [3]
    assert what in tally.failures[0]["what"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ENDINGS)
def test_bytes_at_random(kind, tmp_path):
    path = tmp_path / f"fuzz{kind}"

    @settings(
        max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        st.binary(max_size=300)
        | st.text(alphabet="0123456789.eE+-/ \n\t,#nanifvOF", max_size=300).map(str.encode)
    )
    def fuzz(data):
        path.write_bytes(data)
        assert not attempt(path)[1]

    fuzz()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("m.off", b"OFF\n1 1 1\n" + b"\n" * 10**6),
        ("m.off", b"OFF\n" + b"1 " * 5 * 10**5),
        ("m.obj", b"f 1\n" * 250_000),
        ("m.obj", b"v\n" * 500_000),
        ("m.obj", b"s\n" * 500_000),
        ("m.obj", b"v 0 0 0\nf" + b" 1/" * 300_000),
        ("m.obj", b"v 0 0 0\nf 1 \\\n" + b"1 \\\n" * 250_000),
        (
            "m.ply",
            (PLY % b"binary_little_endian").replace(b"face 2", b"face 1000000")
            + bytes(48)
            + b"\1\0\0\0\0"
            + bytes(10**6),
        ),
        ("m.stl", b"solid\nfacet\n" + b"vertex\n" * 150_000),
        ("p.xyz", b"1 2 3\n" * 170_000 + b"1e 2 3\n"),
        ("p.xyz", b"," * 10**6),
        ("p.xyz", b"," + b" " * 10**6),
        ("p.xyz", b"#\n" * 500_000),
        ("p.xyz", b"0 0 " + b"0" * 10**6 + b"\xff\n"),
        ("p.xyz", b"0 0 1e" + b"0" * 10**6 + b"x\n"),
        ("e.txt", b"9999999999999999999 0\n" * 45_000),
        ("e.txt", b"0" * 10**6 + b" 1\n"),
    ],
)
def test_a_second_for_a_megabyte(name, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    start = time.thread_time()  # other programs do not count
    with contextlib.suppress(LoaderError):
        {"m": load, "p": load, "e": load_edges}[name[0]](path)
    assert time.thread_time() - start < 20  # what is quadratic takes hours
