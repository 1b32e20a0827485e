"""Files as this version writes them: graphs, a run, trials; ``python tests/kept/write.py FOLDER``.

The folder of a release stays as it was written; later versions are tested on it.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import torch

import graphattn as ga
from graphattn.training import fit

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "study")]

import shape_folders  # noqa: E402, in the folder above
from tiny_study import tiny_run  # noqa: E402

GRAPHS = {
    "rule": lambda: ga.graphs.sliding_window(23, 5, causal=True) | ga.graphs.global_tokens(23, [3]),
    "listed": lambda: ga.from_edge_index(torch.tensor([[4, 0, 4, 2], [1, 1, 0, 2]]), 5, 3),
    "heads": lambda: ga.PerHead([ga.graphs.causal(7), ga.graphs.sparse_strided(7, 3)]),
    "examples": lambda: ga.PerExample([ga.graphs.causal(5), ga.graphs.full(3)]),
    "pattern": lambda: ga.graphs.sliding_window(..., 4, causal=True),
}


def write(folder: Path) -> None:
    """All of them."""
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    for name, make in GRAPHS.items():
        ga.save(make(), folder / f"{name}.json")
    ga.save(GRAPHS["listed"](), folder / "listed.safetensors")
    fit.save_report = lambda *args: None
    with tempfile.TemporaryDirectory() as above:
        shapes = shape_folders.two_classes(Path(above) / "shapes")
        ga.training.train(shapes, folder / "run", **shape_folders.QUICK)
        shutil.copy(shapes / "tall" / "3.ply", folder / "shape.ply")
        ga.training.predict(folder / "run", [folder / "shape.ply"], Path(above) / "out")
        shutil.copy(Path(above) / "out" / "predictions.csv", folder / "predictions.csv")
        tiny_run(Path(above) / "study")
        (folder / "study").mkdir()
        for name in ("trials.jsonl", "plan.json"):
            shutil.copy(Path(above) / "study" / name, folder / "study" / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
