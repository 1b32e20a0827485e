"""Small folders of shapes to train on, and how the tests do: as little as will do."""

import torch

import graphattn as ga

SMALL = {"widths": [8, 8], "num_heads": 2}
QUICK = {"epochs": 1, "model_options": SMALL, "control": False}


def cloud(height, number):
    draw = torch.Generator().manual_seed(number)
    pos = torch.rand(20 + number % 5, 3, generator=draw) * torch.tensor([1.0, 1.0, height])
    return ga.shapes.Shape(pos=pos)


def two_classes(folder):
    """Ten clouds in each of two classes."""
    for name, height in (("flat", 0.1), ("tall", 1.0)):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            ga.save(cloud(height, number), folder / name / f"{number}.ply")
    return folder


def labelled_points(folder):
    """Ten clouds whose upper points are of class 1; one point of each has no label."""
    folder.mkdir()
    for number in range(10):
        shape = cloud(2.0, number)
        shape.label = (shape.pos[:, 2] > 1).int()
        shape.label[number % 3] = -1
        ga.save(shape, folder / f"{number}.ply")
    return folder


def measured_meshes(folder):
    """Eight octahedra with a number at each vertex."""
    folder.mkdir()
    faces = torch.tensor(
        [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]]
    )
    corners = torch.cat((torch.eye(3), -torch.eye(3)))[[0, 3, 1, 4, 2, 5]]
    for number in range(8):
        pos = corners * (1 + 0.1 * number)
        ga.save(
            ga.shapes.Shape(pos=pos, face=faces.T, label=1 / pos.norm(dim=1)),
            folder / f"{number}.ply",
        )
    return folder
