"""Stratified Transformer and Swin3D against their formulas in plain torch: windows, samples, tables
edge by edge.
"""

import math

import pytest
import torch
from point_twins import State, farthest, interpolated, nearest

import graphattn as ga
from graphattn import models
from graphattn.graphs import hierarchy, knn, stratified_windows

STEP, REACH, WINDOW = 0.06, 10, 0.3
SIGNAL_STEP, SIGNAL_REACH = 0.3, 4


def sees(t, s, w, shift, sampled):
    """The window of t, or a sampled point of the window twice as wide."""
    cube = [[math.floor((c - shift * k) / (w * k)) for k in (1, 2)] for c in (*t, *s)]
    same = [all(cube[axis][k] == cube[axis + 3][k] for axis in range(3)) for k in (0, 1)]
    return same[0] or (same[1] and sampled)


def row(table, difference, step, reach):
    """The sum over axes of the table's rows of a difference."""
    steps = (difference / step).floor().clamp(-reach, reach - 1).long() + reach
    return sum(table[axis, number] for axis, number in enumerate(steps.tolist()))


def block(state, x, pos, w, shift, step, heads, signals=None):
    y = (state / "norm").norm(x)
    q, k, v = (state / "qkv").linear(y).view(len(x), 3, heads, -1).unbind(1)
    sampled = set(ga.shapes.farthest_points(pos, ratio=0.25).tolist())
    out = torch.zeros_like(q)
    known = [(state / "table", pos, step, REACH)]
    if signals is not None:
        known.append((state / "signals", signals, SIGNAL_STEP, SIGNAL_REACH))
    for t in range(len(x)):
        near = [
            s
            for s in range(len(x))
            if sees(pos[t].tolist(), pos[s].tolist(), w, shift, s in sampled)
        ]
        scores, values = [], []
        for s in near:
            of = [
                sum(
                    0 if own.get(name) is None else row(own.get(name), z[t] - z[s], *how)
                    for own, z, *how in known
                )
                for name in ("query", "key", "value")
            ]
            scores.append(
                (q.shape[-1] ** -0.5 * q[t] * (k[s] + of[0])).sum(-1) + (k[s] * of[1]).sum(-1)
            )
            values.append(v[s] + of[2])
        out[t] = (torch.stack(scores).softmax(0)[..., None] * torch.stack(values)).sum(0)
    x = x + (state / "out").linear(out.flatten(1))
    y = (state / "feed_forward_norm").norm(x)
    inner = torch.nn.functional.gelu((state / "feed_forward" / "up").linear(y))
    return x + (state / "feed_forward" / "down").linear(inner)


def twin(model, x, pos, kept, signals=None):
    state = State(model)
    state.tensors = dict(model.named_parameters())  # which have gradients
    dense = lambda own, x: (own / "norm").norm((own / "linear").linear(x)).relu()  # noqa: E731
    levels, x = state / "levels", dense(state / "embedding", x)
    for number, shift in ((0, 0.0), (1, WINDOW / 2)):
        x = block(levels / "stages" / "0" / str(number), x, pos, WINDOW, shift, STEP, 2, signals)
    down = levels / "downs" / "0"
    y = (
        (down / "dense" / "1")
        .linear((down / "dense" / "0").norm(x))[nearest(pos, pos[kept], 6)]
        .amax(1)
    )
    coarse = None if signals is None else signals[kept]
    y = block(levels / "stages" / "1" / "0", y, pos[kept], 2 * WINDOW, 0.0, 2 * STEP, 3, coarse)
    if model.levels.readout == "shape":
        x = y.mean(0, keepdim=True)
    else:
        up = levels / "ups" / "0"
        carried = interpolated(
            (up / "dense" / "1").linear((up / "dense" / "0").norm(y)), pos[kept], pos
        )
        x = (up / "own" / "1").linear((up / "own" / "0").norm(x)) + carried
    return (state / "head" / "2").linear(dense(state / "head" / "0", x))


def windows(w):
    return tuple(stratified_windows(..., w, 0.25, shift=shift) for shift in (0.0, w / 2))


@pytest.mark.parametrize(("readout", "values", "signals"), [("node", True, 5), ("shape", False, 0)])
def test_outputs_and_gradients_are_those_of_the_formulas(readout, values, signals):
    torch.manual_seed(0)
    how = {
        "signals": signals,
        "signal_step": SIGNAL_STEP,
        "signal_reach": SIGNAL_REACH,
        "values": values,
    }
    model = models.StratifiedTransformer(
        4, 3, (8, 12), (2, 1), (2, 3), step=STEP, reach=REACH, readout=readout, **how
    ).double()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.4)
    pos, x = torch.rand(31, 3).double(), torch.randn(31, 4).double().requires_grad_()
    kept = farthest(pos, 12)
    graph = [windows(WINDOW), windows(2 * WINDOW)]
    shape = hierarchy(pos, points=[kept], graph=graph, down=knn(..., 6), up=knn(..., 3))
    carried = torch.rand(31, 5).double() * 2 - 1 if signals else None
    shape = shape.with_signals(carried) if signals else shape
    given, wanted = model(x, shape), twin(model, x, pos, kept, carried)
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-9)
    leaves = [x, *model.parameters()]
    grads = [
        torch.autograd.grad(y.square().sum(), leaves, allow_unused=True) for y in (given, wanted)
    ]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(
            ours, torch.zeros_like(ours) if theirs is None else theirs, rtol=1e-8, atol=1e-8
        )


def test_windows_of_widths_that_heads_do_not_divide_are_refused():
    with pytest.raises(
        ga.errors.OptionError, match="multiples of num_heads, level by level; got 9 and 2"
    ):
        models.StratifiedTransformer(3, 5, (8, 9), 1, 2)


def test_signals_are_those_of_kept_points_and_means_of_cells_and_no_others_will_do():
    pos, colour = torch.rand(20, 3), torch.rand(20, 2)
    kept = hierarchy(pos, ratio=0.5).with_signals(colour)
    assert torch.equal(kept.levels[1].signals, colour[kept.levels[1].kept])
    cells = hierarchy(pos, cell=0.5).with_signals(colour)
    share = cells.levels[1].down.mask().float()
    torch.testing.assert_close(cells.levels[1].signals, share / share.sum(1, keepdim=True) @ colour)
    both = ga.graphs.Hierarchy.join([cells, cells])
    assert torch.equal(both.levels[1].signals, cells.levels[1].signals.repeat(2, 1))
    with pytest.raises(
        ga.errors.GraphError, match=r"signals must have shape \(20, m\), got a Tensor \(5, 2\)"
    ):
        cells.with_signals(colour[:5])
    model = models.StratifiedTransformer(3, 5, (8, 8), 1, 2, signals=3)
    for shape in (cells, hierarchy(pos, cell=0.5)):
        with pytest.raises(ga.errors.GraphError, match="shape must have 3 signals; pass"):
            model(pos, shape)
