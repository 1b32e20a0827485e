"""Ranks along curves in one launch: the keys of plain operations, in Triton's interpreter."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphattn.graphs.points import curve_keys
from graphattn.graphs.points.curve_keys import CURVES, KEY_BITS, curve_key

TESTS = Path(__file__).parents[2]


@pytest.mark.slow
def test_one_launch_gives_the_keys_of_plain_operations():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, __file__]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 4 * (3 + 3 + 3)
    wrong = [name for name, are_equal in found.items() if not are_equal]
    assert not wrong


def test_cells_of_a_device_that_triton_does_not_know_are_ranked_in_plain_operations():
    class Old(torch.Tensor):
        is_cuda = True

    cells = torch.tensor([[1, 0], [0, 1], [2, 1]]).as_subclass(Old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert curve_key(cells, "z", 2).tolist() == [2, 1, 9]


def interpreted():
    """True for each kind of keys that are the same."""
    sys.path.insert(0, str(TESTS / "kernels"))
    from interpreted import as_index

    from graphattn.graphs.points import curves_triton

    as_index()
    draw = torch.Generator().manual_seed(0)
    told = {}
    for dims in (1, 2, 3):
        for bits, curve in itertools.product((1, 5, min(52, KEY_BITS // dims)), CURVES):
            cells = torch.randint(1 << bits, (301, dims), generator=draw)
            plain = curve_key(cells, curve, bits)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(curve_keys, "_on_device", lambda cells: curves_triton.rank)
                ours = curve_key(cells, curve, bits)
            told[f"{curve}, {dims} axes, {bits} bits"] = torch.equal(ours, plain)
    print(json.dumps(told))


if __name__ == "__main__":
    interpreted()
