"""Known mistakes about who reads whom, as the answer each would give; ``None`` where it would change nothing.

What they make of a graph is in :mod:`graphattn.questions.mistakes`; here are those that count an edge twice, too.
"""

import torch

from ..questions import mistakes
from .scene import Answer, Mistake, Scene, attend, with_mask


def _of(known: mistakes.Mistake) -> Mistake:
    """A mistake about a mask, made on a scene."""
    words, make = known

    def answer(scene: Scene) -> Answer | None:
        wrong = make(scene.graph)
        if wrong is None:
            return None
        every = torch.arange(scene.graph.num_sources, device=scene.targets.device)
        return with_mask(wrong.contains(scene.targets[:, None], every[None, :]), scene)

    return words, answer


def symmetric_counted(scene: Scene) -> Answer | None:
    if not scene.graph.is_square:
        return None
    every = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    copies = scene.copies + scene.graph.contains(every[None, :], scene.targets[:, None])
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    return None if uniform else attend(scene, copies > 0, copies)


def repeats_merged(scene: Scene) -> Answer | None:
    return attend(scene) if bool((scene.copies > 1).any()) else None


def loops_counted_twice(scene: Scene) -> Answer | None:
    again = scene.copies + scene.diagonal
    if not scene.graph.is_square or not bool((again > 1).any()):
        return None
    return attend(scene, again > 0, again)


SYMMETRIC = mistakes.SYMMETRIC[0]
COUNTED = "reversed edges added and counted beside those that were there"
RARE = (SYMMETRIC, COUNTED)  # not said of what a simpler mistake explains as well, such as no mask on a causal graph

WRONG_GRAPHS: tuple[Mistake, ...] = (
    _of(mistakes.SWAPPED),
    *map(_of, mistakes.BASIC),
    ("repeated edges merged: copies of an edge counted once", repeats_merged),
    ("self-loops counted twice: added to a graph that has them", loops_counted_twice),
    *map(_of, mistakes.LOOPS),
    _of(mistakes.SYMMETRIC),
    (COUNTED, symmetric_counted),
    *map(_of, mistakes.BANDS),
    *map(_of, mistakes.WINDOWS),
    *map(_of, mistakes.PARTS),
    *map(_of, mistakes.GRIDS),
)
