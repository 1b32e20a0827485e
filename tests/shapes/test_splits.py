"""Parts of a folder of labelled points: each has every class where that can be."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.shapes import ShapeFolder


def scenes(root, classes):
    """A file for each set of classes, of which every fourth point has one."""
    root.mkdir(parents=True, exist_ok=True)
    for number, own in enumerate(classes):
        label = torch.tensor(own).repeat(4)
        ga.save(
            ga.shapes.Shape(pos=torch.rand(len(label), 3), label=label), root / f"{number:02}.ply"
        )
    return ShapeFolder(root)


def classes_of(folder, part):
    return set(torch.cat([folder.labels[number] for number in part.indices]).tolist()) - {-1}


@pytest.mark.parametrize("seed", range(5))
def test_parts_have_rare_classes_whatever_the_seed(seed, tmp_path):
    """Of 23 tiles three have class 1, and three others class 2."""
    folder = scenes(tmp_path, [[0, 1]] * 3 + [[0]] * 17 + [[0, 2, -1]] * 3)
    parts = folder.split(seed=seed)
    assert [len(part) for part in parts.values()] == [16, 2, 5]
    for part in parts.values():
        assert classes_of(folder, part) == {0, 1, 2}
    assert "each class in these parts" in parts.said
    assert folder.split(seed=seed).said == parts.said


def test_a_class_of_one_file_is_trained_on_and_its_lack_elsewhere_is_said(tmp_path):
    folder = scenes(tmp_path, [[0], [0, 1], [0], [0], [0, 2], [0], [0, 1], [0], [0], [0]])
    for seed in range(4):
        parts = folder.split(seed=seed)
        assert classes_of(folder, parts["train"]) == {0, 1, 2}
        assert classes_of(folder, parts["val"]) == {0, 1}
        assert "test without 2 of 3 classes, val without 1 of 3 classes" in parts.said


def test_a_split_that_has_each_class_is_the_one_that_the_seed_draws(tmp_path):
    folder = scenes(tmp_path, [[0, 1]] * 11)
    order = np.random.default_rng(7).permutation(range(11)).tolist()
    parts = folder.split(seed=7)
    assert parts["test"].indices == sorted(order[:2])
    assert parts["val"].indices == sorted(order[2:3])


def test_a_part_that_the_folder_gives_stays_as_it_is(tmp_path):
    scenes(tmp_path / "train", [[0, 1, 2]] * 5)
    scenes(tmp_path / "val", [[0]])
    folder = ShapeFolder(tmp_path)
    assert [folder.name(number) for number in folder.split()["val"].indices] == ["val/00.ply"]


def unequal(folder, parts):
    """Sum of the differences of each part's share of a class from its share of the files."""
    total = folder.counts(range(len(folder))).sum(0)
    shares = [folder.counts(part.indices).sum(0) / total for part in parts.values()]
    sizes = [len(part) / len(folder) for part in parts.values()]
    return sum(float(abs(share - size).sum()) for share, size in zip(shares, sizes, strict=True))


def test_parts_have_classes_in_more_equal_shares_than_one_draw_gives(tmp_path):
    """Of 19 tiles each has every class; two hold most labels of class 1, and two of class 2."""
    few = [[0] * 9 + [1, 2]] * 15
    folder = scenes(tmp_path, [*few, *[[0, 2] + [1] * 9] * 2, *[[0, 1] + [2] * 9] * 2])
    gained = []
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(range(19)).tolist()
        once = {
            name: torch.utils.data.Subset(folder, part)
            for name, part in (("test", order[:4]), ("val", order[4:6]), ("train", order[6:]))
        }
        gained.append(unequal(folder, once) - unequal(folder, folder.split(seed=seed)))
    assert min(gained) >= 0
    assert sum(gained) > 0.3
