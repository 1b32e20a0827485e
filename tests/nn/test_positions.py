"""Positions of nodes, against their formulas written down number by number."""

import cmath
import copy
import math
import pickle

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphAttnError, OptionError, PositionIndexError, ShapeError
from graphattn.nn import LearnedPosition, Rotary, SinusoidalPosition, grid_positions

F64 = {"dtype": torch.float64}
MADE = {
    "learned": (lambda: LearnedPosition(11, 6), (2, 7, 6)),
    "sinusoidal": (lambda: SinusoidalPosition(6), (2, 7, 6)),
    "rotary": (lambda: Rotary(10, rotary_dim=6), (2, 7, 3, 10)),
}


def turned_by_hand(x, positions, layout, rotary_dim, base, num_axes):
    """Pairs of channels as complex numbers times exp(i phi), one at a time; x (N, H, D), positions
    (N, A).
    """
    out, pairs = x.clone(), rotary_dim // 2
    share = pairs // num_axes
    for n in range(x.shape[0]):
        for h in range(x.shape[1]):
            for p in range(pairs):
                a, b = (p, p + pairs) if layout == "half" else (2 * p, 2 * p + 1)
                phi = float(positions[n, p // share]) * base ** (-2 * (p % share) / (2 * share))
                z = complex(x[n, h, a], x[n, h, b]) * cmath.exp(1j * phi)
                out[n, h, a], out[n, h, b] = z.real, z.imag
    return out


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("rotary_dim", "num_axes"), [(12, 1), (8, 1), (2, 1), (12, 2), (8, 2), (12, 3)]
)
def test_rotary_is_a_turn_of_the_complex_plane(layout, rotary_dim, num_axes):
    torch.manual_seed(0)
    x, positions = torch.randn(5, 3, 12, **F64), 40 * torch.randn(5, num_axes, **F64)
    rotary = Rotary(12, base=500.0, rotary_dim=rotary_dim, layout=layout, num_axes=num_axes)
    found = rotary(x, positions.squeeze(-1))
    torch.testing.assert_close(
        found, turned_by_hand(x, positions, layout, rotary_dim, 500.0, num_axes), rtol=0, atol=1e-12
    )
    assert torch.equal(found[..., rotary_dim:], x[..., rotary_dim:])
    for other in (
        {"base": 400.0},
        {"layout": "half" if layout == "interleaved" else "interleaved"},
    ):
        wrong = {
            "base": 500.0,
            "rotary_dim": rotary_dim,
            "layout": layout,
            "num_axes": num_axes,
        } | other
        # of one pair per axis, the frequency is 1 and the layouts agree or nearly so
        if rotary_dim > 2 * num_axes:
            assert not torch.allclose(Rotary(12, **wrong)(x, positions.squeeze(-1)), found)


def test_rotary_counts_nodes_by_default_and_takes_positions_of_a_batch():
    x, rotary = torch.randn(2, 5, 3, 8), Rotary(8)
    assert torch.equal(rotary(x), rotary(x, torch.arange(5)))
    apart = torch.tensor([[0, 1, 2, 0, 1], [3, 4, 5, 6, 7]])
    found = rotary(x, apart)
    assert torch.equal(found[0], rotary(x[0], apart[0]))
    assert torch.equal(found[1], rotary(x[1], apart[1]))


@pytest.mark.parametrize("start", [10**6, 10**8])
def test_rotary_of_far_positions_is_as_exact_as_of_near_ones(start):
    torch.manual_seed(0)
    rotary, (query, key) = Rotary(64), torch.randn(2, 1, 1, 64)
    wanted = (rotary(query.double(), torch.tensor([3])) * key).sum()
    found = (rotary(query, torch.tensor([start + 3])) * rotary(key, torch.tensor([start]))).sum()
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)
    assert (
        abs(
            (rotary(query, torch.tensor([start + 4])) * rotary(key, torch.tensor([start]))).sum()
            - wanted
        )
        > 0.1
    )
    far = torch.tensor([start])
    for x in (torch.zeros(1, 6), torch.zeros(1, 6).double()):
        angles = [start / 10000 ** (2 * i / 6) for i in range(3)]
        by_hand = torch.tensor(
            [[wave(angle) for angle in angles for wave in (math.sin, math.cos)]], dtype=x.dtype
        )
        torch.testing.assert_close(SinusoidalPosition(6)(x, far), by_hand, rtol=0, atol=1e-7)


def test_learned_positions_are_integers_of_any_width():
    learned, x = LearnedPosition(300, 4), torch.zeros(3, 4)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        assert torch.equal(
            learned(x, torch.tensor([7, 0, 127], dtype=dtype)), learned.weight[[7, 0, 127]]
        )


@pytest.mark.parametrize("num_axes", [1, 2])
def test_rotary_scores_depend_only_on_the_difference_of_positions(num_axes):
    torch.manual_seed(0)
    rotary = Rotary(8, num_axes=num_axes)
    query, key, value = torch.randn(3, 12, 2, 8, **F64)
    at = grid_positions((3, 4)) if num_axes == 2 else torch.arange(12)
    graph = ga.graphs.causal(12)

    def weights(of_query, of_key):
        return ga.attention(
            rotary(query, of_query), rotary(key, of_key), value, graph, return_weights=True
        ).weights.alpha

    here = weights(at, at)
    torch.testing.assert_close(weights(at + 1000, at + 1000), here, rtol=0, atol=1e-10)
    assert not torch.allclose(weights(at + 1, at), here)


def test_rotary_in_half_precision_is_the_exact_turn_rounded_once():
    x = torch.randn(70, 2, 16).bfloat16()
    found = Rotary(16).bfloat16()(x, torch.arange(70) + 5000)
    wanted = Rotary(16)(x.double(), torch.arange(70) + 5000)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=2e-3)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_sinusoidal_by_its_table(layout):
    dim, base = 10, 300.0
    table = torch.zeros(7, dim, **F64)
    for n in range(7):
        for i in range(dim // 2):
            angle = n * base ** (-2 * i / dim)
            at = (i, i + dim // 2) if layout == "half" else (2 * i, 2 * i + 1)
            table[n, at[0]], table[n, at[1]] = math.sin(angle), math.cos(angle)
    encode, x = SinusoidalPosition(dim, base=base, layout=layout), torch.randn(2, 7, dim, **F64)
    torch.testing.assert_close(encode(x), x + table, rtol=0, atol=1e-13)
    positions = torch.tensor([3, 3, 0, 6, 1, 5, 2])
    torch.testing.assert_close(encode(x, positions), x + table[positions], rtol=0, atol=1e-13)
    assert not torch.allclose(SinusoidalPosition(dim, layout=layout)(x), encode(x))


def test_learned_adds_a_row_and_has_no_more_than_max_len():
    layer, x = LearnedPosition(5, 4), torch.randn(2, 3, 4)
    assert torch.equal(layer(x), x + layer.weight[:3])
    at = torch.tensor([[4, 0, 4], [1, 2, 3]])
    assert torch.equal(layer(x, at), x + layer.weight[at])
    assert layer(torch.randn(5, 4)).shape == (5, 4)
    with pytest.raises(IndexError, match="x must have at most max_len = 5 nodes, got 6"):
        layer(torch.randn(6, 4))
    with pytest.raises(
        GraphAttnError, match=r"positions must be in \[0, 5\), below max_len, got 0 to 5"
    ):
        layer(x, torch.tensor([0, 5, 1]))
    with pytest.raises(PositionIndexError, match="got -1 to 1"):
        layer(x, torch.tensor([0, -1, 1]))


def test_without_positions_a_layer_is_equivariant_and_with_them_it_is_not():
    torch.manual_seed(0)
    layer, x, order = ga.nn.GraphAttention(8, 2), torch.randn(5, 8), torch.tensor([3, 0, 4, 1, 2])
    full = ga.graphs.full(5)
    torch.testing.assert_close(layer(x[order], full), layer(x, full)[order])
    for positions in (LearnedPosition(5, 8), SinusoidalPosition(8)):
        assert not torch.allclose(
            layer(positions(x[order]), full), layer(positions(x), full)[order], atol=1e-4
        )


def test_grid_positions_are_row_by_row():
    assert torch.equal(
        grid_positions((2, 3, 5)), torch.cartesian_prod(*map(torch.arange, (2, 3, 5)))
    )
    assert grid_positions((4,)).tolist() == [[0], [1], [2], [3]]
    assert grid_positions((0, 3)).shape == (0, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", MADE)
def test_gradients_copies_and_compilation(name):
    torch.manual_seed(0)
    make, shape = MADE[name]
    layer = make().double()
    x = torch.randn(shape, **F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, *_: layer(x), (x, *layer.parameters()), fast_mode=True
    )
    assert torch.autograd.gradgradcheck(
        lambda x, *_: layer(x).sin(), (x, *layer.parameters()), fast_mode=True
    )
    other = make().double()
    other.load_state_dict(layer.state_dict())
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other):
        assert torch.equal(twin(x), layer(x))
        assert repr(twin) == repr(layer)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    positions = torch.tensor([3, 1, 4, 1, 5, 9, 2])
    assert torch.equal(compiled(x), layer(x))
    assert torch.equal(compiled(x, positions), layer(x, positions))
    assert layer(x[:, :0]).shape == x[:, :0].shape


REFUSED = {
    "odd dim": (
        lambda: SinusoidalPosition(5),
        OptionError,
        "dim must be even, since channels form pairs; got 5",
    ),
    "odd rotary_dim": (lambda: Rotary(8, rotary_dim=3), OptionError, "rotary_dim must be even"),
    "wide rotary_dim": (
        lambda: Rotary(8, rotary_dim=10),
        OptionError,
        "rotary_dim must be below 9, one more than head_dim, got 10",
    ),
    "axes": (lambda: Rotary(10, num_axes=2), OptionError, r"multiple of 2 \* num_axes = 4, got 10"),
    "layout": (
        lambda: Rotary(8, layout="neox"),
        OptionError,
        'layout must be "half" or "interleaved", got \'neox\'',
    ),
    "whole numbers": (
        lambda: Rotary(4)(torch.ones(5, 1, 4).long()),
        ShapeError,
        "x must be floating point .*, got .* of int64",
    ),
    "width": (lambda: LearnedPosition(9, 4)(torch.randn(5, 3)), ShapeError, r"\(..., nodes, 4\)"),
    "too few": (
        lambda: SinusoidalPosition(4)(torch.randn(5, 4), torch.arange(4)),
        ShapeError,
        r"positions must have shape \(..., 5\), got a Tensor \(4,\)",
    ),
    "wider features": (
        lambda: LearnedPosition(9, 4)(torch.randn(2, 5)),
        ShapeError,
        r"x must have shape \(..., nodes, 4\), got a Tensor \(2, 5\)",
    ),
    "features that are whole numbers": (
        lambda: LearnedPosition(9, 4)(torch.ones(2, 4, dtype=torch.int64)),
        ShapeError,
        "x must be floating point",
    ),
    "real": (
        lambda: LearnedPosition(9, 4)(torch.randn(2, 4), torch.ones(2)),
        ShapeError,
        "must be integers",
    ),
    "no coordinates": (
        lambda: Rotary(8, num_axes=2)(torch.randn(4, 1, 8)),
        ShapeError,
        r"positions \(..., N, 2\) are needed; for a grid pass grid_positions\(\(H, W\)\)",
    ),
    "one coordinate": (
        lambda: Rotary(8, num_axes=2)(torch.randn(4, 1, 8), torch.arange(4)),
        ShapeError,
        r"positions must have shape \(..., 4, 2\), got a Tensor \(4,\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    act, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        act()


AT = torch.arange(5)
HOLE = torch.tensor([0.0, 1.0, float("nan"), 3.0, 4.0])


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        (HOLE, "positions must be finite, got NaN or infinity"),
        (HOLE.nan_to_num(torch.inf), "positions must be finite, got NaN or infinity"),
    ],
)
def test_positions_are_real_numbers_here(positions, words):
    layer = ga.nn.GraphAttention(8, 2, rotary=Rotary(4))
    with pytest.raises(ShapeError, match=words):
        layer(torch.randn(5, 8), ga.graphs.causal(5), positions=positions)
    with pytest.raises(ShapeError, match=words):
        SinusoidalPosition(8)(torch.randn(5, 8), positions)
    with pytest.raises(ShapeError, match=r"positions (must be|are on)"):
        LearnedPosition(5, 8)(torch.randn(5, 8), positions)


def test_positions_of_a_vmap_are_not_looked_at():
    x, positions = torch.randn(3, 5, 2, 4), torch.randn(3, 5)
    torch.testing.assert_close(torch.func.vmap(Rotary(4))(x, positions), Rotary(4)(x, positions))


@pytest.mark.parametrize("pair", [(AT,), (AT, AT, AT), (AT, None), [AT, 3], ()], ids=len)
def test_a_pair_of_positions_is_two_tensors(pair):
    layer, x, graph = (
        ga.nn.GraphAttention(8, 2, rotary=Rotary(4)),
        torch.randn(5, 8),
        ga.graphs.causal(5),
    )
    with pytest.raises(
        ShapeError,
        match="positions must be a tensor or a pair of tensors",
    ):
        layer(x, graph, positions=pair)
    with pytest.raises(ShapeError, match="positions must be a tensor or a pair of tensors"):
        ga.nn.ALiBi(2)(graph, pair)
    assert torch.equal(layer(x, graph, positions=[AT, AT]), layer(x, graph, positions=AT))
