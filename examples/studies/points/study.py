"""Points: shapes by their coordinates, by distances, and by who is near.

*Question.* A cloud of points has no order and comes in any rotation. How much does attention over
all pairs learn of its coordinates, how much is gained when a score knows how far its two points
are, and how much by reading near points alone?

*Data.* Clouds of 32 points on the surfaces of seven shapes of trimesh (box, cylinder, cone,
capsule, torus, annulus, icosphere), each with axes stretched by .7 to 1.3, turned at random, with
noise of 2 % of its radius, in coordinates of its root mean square radius. 1,600 clouds, 400 held
out, drawn anew by each seed. Chance is 1/7.

*Arms.* Each point reads itself and its 8 nearest (kNN 9), or its 16 nearest (kNN 17). Self, full
and as many points at random (in-degrees of kNN) by themselves.

*Model and training.* Two layers of width 32, 4 heads, the mean of the points; AdamW, one cycle up
to 5e-3 (tables .05), 500 batches of 32. The features are the coordinates; positions "none", or
"distance": a table over buckets of an eighth of the radius for each layer and head, which turning
the cloud does not change.

*Predicted before training.* With distances: kNN 9 > full > full without distances, and kNN 9 > as
many at random, of which distances tell who is near as well, and which are seldom near. Baselines:
a forest on sorted distances from the centre, and one on the histogram of all distances.

*What cannot be said.* Anything about what attention on points can learn: every arm is below a
forest on the histogram of distances (.548), which needs no attention. 500 batches of these small
models compare beginnings, and five seeds judge nothing.
"""

from typing import Any

import numpy as np
import torch
from shared import chosen, forest, possible, scores_of

from graphattn.errors import need_extra
from graphattn.graphs import knn
from graphattn.study import Budget, Claim, Comparison, Data, Model, Study, Training

CLOUDS, HELD, POINTS = 1_600, 400, 32


def shapes() -> dict[str, Any]:
    """Makers of meshes, of about radius 1."""
    try:
        from trimesh import creation
    except ImportError as error:
        raise need_extra("trimesh", "mesh") from error
    return {
        "box": lambda: creation.box((1.2, 1.2, 1.2)),
        "cylinder": lambda: creation.cylinder(0.6, 1.6),
        "cone": lambda: creation.cone(0.8, 1.6),
        "capsule": lambda: creation.capsule(1.2, 0.5),
        "torus": lambda: creation.torus(0.8, 0.3),
        "annulus": lambda: creation.annulus(0.5, 0.9, 0.8),
        "icosphere": lambda: creation.icosphere(3, 0.9),
    }


def data(count: int = CLOUDS, held: int = HELD) -> Data:
    """Coordinates as features and as places; a target is the number of the shape."""
    from scipy.spatial.transform import Rotation
    from trimesh.sample import sample_surface

    random, meshes = np.random.default_rng(5), [make() for make in shapes().values()]
    label = random.integers(len(meshes), size=count)
    clouds = np.stack(
        [np.asarray(sample_surface(meshes[k], POINTS, seed=int(i))[0]) for i, k in enumerate(label)]
    )
    clouds = clouds * random.uniform(0.7, 1.3, (count, 1, 3))
    clouds = np.einsum("mnd,med->mne", clouds, Rotation.random(count, rng=random).as_matrix())
    clouds += random.normal(0, 0.02, clouds.shape)
    clouds -= clouds.mean(1, keepdims=True)
    clouds /= np.sqrt((clouds**2).sum(-1).mean(-1))[:, None, None]
    pos = torch.tensor(clouds, dtype=torch.float32)
    return Data(pos, torch.tensor(label), held, pos=pos)


def arms() -> dict[str, Any]:
    """Recipes of places."""
    return {"kNN 9": knn(..., k=9, self_loops=True), "kNN 17": knn(..., k=17, self_loops=True)}


def baselines(clouds: Data) -> dict[str, float]:
    """Plain methods that no rotation changes, on all examples."""
    radii = clouds.inputs.norm(dim=-1).sort(-1).values.numpy()
    apart = torch.stack([torch.pdist(cloud).histc(32, 0.0, 4.0) for cloud in clouds.inputs]).numpy()
    methods = {
        "forest on distances from the centre": (radii, forest()),
        "forest on all distances": (apart, forest()),
    }
    return scores_of(methods, clouds)


def study(quick: bool = False) -> Study:
    """One comparison; quick, to see that it runs: kNN 9 and full with distances, 100 clouds, 20
    batches.
    """
    clouds = data(100, 40) if quick else data()
    given = chosen(arms(), ["kNN 9"] if quick else None)
    comparison = Comparison(
        "points",
        given,
        clouds,
        model=Model(layers=2, width=32, heads=4, hidden=64),
        training=Training(rate=5e-3, table_rate=5e-2, batch=32),
        budgets=[Budget(None, 20 if quick else 500)],
        positions=("distance",) if quick else ("none", "distance"),
        controls=("full",) if quick else ("self", "full", "in-degrees", "shuffled"),
    )
    claims = [
        Claim("full", "full", "distance", because="distances do not turn", worse_positions="none"),
        Claim("kNN 9", "full", "distance", because="near points show the surface"),
        Claim("kNN 9", "in-degrees of kNN 9", "distance", because="near points show the surface"),
    ]
    if quick:
        return Study("points", [comparison], seeds=1)
    return Study(
        "points",
        [comparison],
        possible(claims, [comparison]),
        {"points": baselines(clouds)},
        seeds=5,
    )
