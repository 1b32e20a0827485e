"""Readers and the training script of public benchmarks, on tiny files of the published layouts."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphattn.errors import LoaderError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "public_benchmarks"))
files, train = (__import__(name) for name in ("benchmark_files", "train"))
RANDOM = np.random.default_rng(0)


def ring(nodes):
    node = torch.arange(nodes)
    both = torch.stack(
        (torch.cat((node, (node + 1) % nodes)), torch.cat(((node + 1) % nodes, node)))
    )
    return both[:, torch.argsort(both[0], stable=True)]


def lrgb(root, name, ending, width, edge_width, target):
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for split in files.SPLITS:
        graphs = []
        for nodes in (5, 7, 6):
            edges, integers = ring(nodes), name.startswith("peptides")
            x, attr = (
                torch.randint(3, shape) for shape in ((nodes, width), (edges.shape[1], edge_width))
            )
            graphs.append(
                (
                    x if integers else x.float(),
                    attr if integers else attr.float(),
                    edges,
                    target(nodes),
                )
            )
        if ending == "pt":
            torch.save(graphs, raw / f"{split}.pt")
        else:
            (raw / f"{split}.pickle").write_bytes(pickle.dumps(graphs))


def zinc(root):
    (root / "raw").mkdir(parents=True)
    for split in files.SPLITS:
        molecules = []
        for nodes in (5, 7, 6):
            bonds = torch.zeros(nodes, nodes, dtype=torch.int64)
            bonds[tuple(ring(nodes))] = 2
            y = torch.randn(1)
            molecules.append(
                {
                    "atom_type": torch.randint(28, (nodes,)),
                    "bond_type": bonds,
                    "logP_SA_cycle_normalized": y,
                }
            )
        (root / "raw" / f"{split}.pickle").write_bytes(pickle.dumps(molecules))
        (root / "raw" / f"{split}.index").write_text("0,2,1\n", encoding="utf-8")


def listops(root):
    root.mkdir()
    for split in files.SPLITS:
        lines = [
            "Source\tTarget",
            "( ( ( [MAX 4 ) 3 ) ] )\t4",
            "( ( ( [SM 9 ) ( ( ( [MIN 2 ) 7 ) ] ) ) ] )\t1",
            "5\t5",
        ]
        (root / f"basic_{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def imdb(root):
    for split in ("train", "test"):
        for kind in ("neg", "pos"):
            (root / split / kind).mkdir(parents=True)
            for number in range(2):
                (root / split / kind / f"{number}_1.txt").write_bytes(
                    f"a film é {kind} {number}".encode()
                )


def pathfinder(root):
    from PIL import Image

    (root / "metadata").mkdir(parents=True)
    for part in range(2):
        (root / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for number in range(5):
            pixels = RANDOM.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "imgs" / str(part) / f"sample_{number}.png")
            lines.append(f"imgs/{part} sample_{number}.png {number} {number % 2} 1 2 3")
        (root / "metadata" / f"{part}.npy").write_text("\n".join(lines) + "\n", encoding="utf-8")


MAKE = {
    "zinc": zinc,
    "peptides-func": lambda root: lrgb(
        root, "peptides-func", "pt", 9, 3, lambda n: torch.eye(10)[n % 3 : n % 3 + 1]
    ),
    "peptides-struct": lambda root: lrgb(
        root, "peptides-struct", "pt", 9, 3, lambda n: torch.randn(1, 11)
    ),
    "pascalvoc-sp": lambda root: lrgb(
        root, "pascalvoc-sp", "pickle", 14, 2, lambda n: [i % 21 for i in range(n)]
    ),
    "listops": listops,
    "imdb": imdb,
    "pathfinder": pathfinder,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("name", train.TASKS)
def test_every_task_reads_its_files_and_trains_every_arm(name, tmp_path, capsys):
    root, out = tmp_path / name, tmp_path / "runs.jsonl"
    with pytest.raises(LoaderError, match="nothing is downloaded"):
        train.TASKS[name].read(str(root))
    MAKE[name](root)
    options = [name, "--root", str(root), "--out", str(out), "--device", "cpu", "--batch", "2"]
    options += ["--epochs", "1", "--seeds", "1", "--width", "8", "--layers", "1"]
    train.main(options)
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [line["arm"] for line in lines] == list(
        train.OF_GRAPHS if train.TASKS[name].edge_dim else train.OF_SEQUENCES
    )
    assert all(np.isfinite(line["test"]) for line in lines)
    train.main(options)  # nothing is trained again
    assert len(out.read_text("utf-8").splitlines()) == len(lines)
    assert (
        f"{name}, {lines[0]['arm']}: {train.TASKS[name].metric} {lines[0]['test']:.4f}"
        in capsys.readouterr().out
    )


def test_what_is_read_is_what_the_files_say(tmp_path):
    for name in ("listops", "imdb", "pathfinder", "zinc"):
        MAKE[name](tmp_path / name)
    lists = files.listops(tmp_path / "listops")["train"]
    assert [x.tolist() for x in lists.tokens] == [[12, 5, 4, 15], [14, 10, 11, 3, 8, 15, 15], [6]]
    assert lists.labels.tolist() == [4, 1, 5]
    reviews = files.imdb(tmp_path / "imdb")["test"]
    assert bytes(x - 1 for x in reviews.tokens[3].tolist()).decode() == "a film é pos 1"
    assert reviews.labels.tolist() == [0, 0, 1, 1]
    paths = files.pathfinder(tmp_path / "pathfinder")
    assert [len(paths[split].tokens) for split in files.SPLITS] == [8, 1, 1]
    assert paths["train"].labels.tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    assert paths["train"].tokens[0].shape == (64,)
    molecules = files.zinc(tmp_path / "zinc")["val"]
    assert [data.num_nodes for data in molecules] == [5, 6, 7]  # in the order of the index
    assert molecules[0].edge_attr[0].tolist() == [0, 0, 1, 0]
    (tmp_path / "listops" / "basic_val.tsv").write_text(
        "Source\tTarget\n[MAX 4 X ]\t4\n", encoding="utf-8"
    )
    with pytest.raises(LoaderError, match="line 2: expected an expression"):
        files.listops(tmp_path / "listops")


def test_the_list_names_every_task_with_its_files(capsys):
    train.main(["--list"])
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()] == list(train.TASKS)
    assert "peptides-func/raw/train.pt" in out
