"""Random sets of edges, each with its mask written down independently, pair by pair or by numpy."""

import numpy as np
import torch
from hypothesis import strategies as st

from graphattn.graph import algebra, forms
from graphattn.graph.edges import Edges
from graphattn.graph.forms import FAR
from graphattn.graph.listed import checked
from graphattn.graphs.grid.axes import cell_window
from graphattn.graphs.grid.axes import cells as axis_cells
from graphattn.graphs.grid.balls import _ball
from graphattn.graphs.grid.cells_and_windows import axis_neighbourhood

Case = tuple[Edges, np.ndarray]


def table(num_targets, num_sources, inside) -> np.ndarray:
    """The mask of a function of two Python ints."""
    mask = np.zeros((num_targets, num_sources), dtype=bool)
    for t in range(num_targets):
        for s in range(num_sources):
            mask[t, s] = inside(t, s)
    return mask


@st.composite
def masks(draw, T, S):
    bits = draw(st.lists(st.booleans(), min_size=T * S, max_size=T * S))
    return np.array(bits, dtype=bool).reshape(T, S)


@st.composite
def bands(draw, T, S) -> Case:
    lo = draw(st.sampled_from([-FAR, -3, -2, -1, 0, 1, 2]))
    hi = draw(st.sampled_from([FAR, 3, 2, 1, 0, -1, -2]))
    step, offset = draw(st.integers(1, 4)), draw(st.sampled_from([0, S - T, 2, -3]))
    mask = table(T, S, lambda t, s: lo <= t - s + offset <= hi and (t - s + offset) % step == 0)
    return forms.band(T, S, lo, hi, step, offset), mask


@st.composite
def rectangles(draw, T, S) -> Case:
    chosen = [draw(st.sets(st.integers(0, n - 1))) if n else set() for n in (T, S)]
    parts = [forms.stretches(torch.tensor(sorted(c), dtype=torch.int64)) for c in chosen]
    return forms.rectangle(T, S, *parts), table(
        T, S, lambda t, s: t in chosen[0] and s in chosen[1]
    )


@st.composite
def partitions(draw, T, S) -> Case:
    target = draw(st.lists(st.integers(-2, 3), min_size=T, max_size=T))
    source = (
        target
        if T == S and draw(st.booleans())
        else draw(st.lists(st.integers(-2, 3), min_size=S, max_size=S))
    )
    labels = [torch.tensor(x, dtype=torch.int64) for x in (target, source)]
    edges = forms.partition(labels[0]) if source is target else forms.partition(*labels)
    return edges, table(T, S, lambda t, s: target[t] == source[s])


@st.composite
def predicates(draw, T, S) -> Case:
    mask = draw(masks(T, S))
    lookup = torch.from_numpy(mask)
    return forms.of_function(T, S, lambda t, s: lookup[t, s]), mask


@st.composite
def listings(draw, T, S, repeats=False) -> Case:
    pair = st.tuples(st.integers(0, max(S - 1, 0)), st.integers(0, max(T - 1, 0)))
    size = draw(st.integers(0, 17)) if T and S else 0
    pairs = draw(st.lists(pair, min_size=size, max_size=size))
    if not repeats:
        pairs = list(dict.fromkeys(pairs))
    mask = np.zeros((T, S), dtype=bool)
    for s, t in pairs:
        mask[t, s] = True
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return checked(edge_index, T, S, "keep"), mask


@st.composite
def cells(draw, N) -> Case:
    size, shift = draw(st.integers(1, N + 2)), draw(st.integers(0, N))
    return axis_cells(N, size, shift), table(
        N, N, lambda t, s: (t - shift) // size == (s - shift) // size
    )


@st.composite
def neighbourhoods(draw, N) -> Case:
    kernel = draw(st.integers(1, N))
    dilation = draw(st.integers(1, N // kernel))
    stride = draw(st.integers(1, kernel))
    causal, clamp = draw(st.booleans()), draw(st.booleans())

    def inside(t, s):
        """Among those of equal residue: the kernel nearest to the leader, the left one more where
        it is even.
        """
        if t % dilation != s % dilation:
            return False
        group = list(range(t % dilation, N, dilation))
        sharing = group.index(t) // stride * stride
        if causal:
            end = min(sharing + stride, len(group))
            return s <= t and s in group[max(0, end - kernel) : end]
        first = sharing + stride // 2 - kernel // 2
        if clamp:
            first = min(max(first, 0), len(group) - kernel)
        return s in group[max(first, 0) : first + kernel]

    return axis_neighbourhood(N, kernel, dilation, causal, stride=stride, clamp=clamp), table(
        N, N, inside
    )


@st.composite
def cell_windows(draw, T, S) -> Case:
    cell, step, width = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 7))
    start, shift = draw(st.integers(-3, 3)), draw(st.integers(-3, 3))

    def inside(t, s):
        first = start + (t - shift) // cell * step
        return first <= s < first + width

    return cell_window(T, S, cell, step, width, start, shift), table(T, S, inside)


@st.composite
def balls(draw, N) -> Case:
    height = draw(st.sampled_from([side for side in range(1, N + 1) if N % side == 0]))
    grid = draw(st.sampled_from([(N,), (height, N // height), (height, 1, N // height)]))
    r, p, strict = (
        draw(st.sampled_from([0, 1, 2, 3.5])),
        draw(st.sampled_from([1, 2, np.inf])),
        draw(st.booleans()),
    )
    place = np.stack(np.unravel_index(np.arange(N), grid), 1)
    distance = np.linalg.norm(place[:, None] - place[None], ord=p, axis=2)
    return _ball(grid, r, p, strict), distance < r if strict else distance <= r


@st.composite
def composed(draw, T, S, depth) -> Case:
    middle = draw(st.integers(0, 9))
    (a, x), (b, y) = draw(edge_sets(T, middle, depth)), draw(edge_sets(middle, S, depth))
    return algebra.compose(a, b), (x.astype(int) @ y.astype(int)) > 0


@st.composite
def behind_tokens(draw, T, S, depth) -> Case:
    number = draw(st.integers(0, min(T, S)))
    edges, rest = draw(edge_sets(T - number, S - number, depth))
    mask = np.ones((T, S), dtype=bool)
    mask[number:, number:] = rest
    return algebra.behind_tokens(edges, number), mask


@st.composite
def products(draw) -> Case:
    axes = [
        draw(edge_sets(draw(st.integers(1, 4)), draw(st.integers(1, 4)), 0))
        for _ in range(draw(st.integers(1, 3)))
    ]
    mask = np.ones((1, 1), dtype=bool)
    for _, axis in axes:
        mask = np.kron(mask, axis)
    return forms.product([edges for edges, _ in axes]), mask


@st.composite
def blocks(draw) -> Case:
    sizes = st.integers(0, 4)
    parts = [draw(edge_sets(draw(sizes), draw(sizes), 0)) for _ in range(draw(st.integers(0, 3)))]
    cells, t, s = [], 0, 0
    for edges, mask in parts:
        cells.append((edges, t, s))
        t, s = t + mask.shape[0], s + mask.shape[1]
    return algebra.union_of_blocks(cells, t, s), block_diagonal([mask for _, mask in parts])


def block_diagonal(parts) -> np.ndarray:
    whole = np.zeros((sum(m.shape[0] for m in parts), sum(m.shape[1] for m in parts)), dtype=bool)
    t = s = 0
    for part in parts:
        whole[t : t + part.shape[0], s : s + part.shape[1]] = part
        t, s = t + part.shape[0], s + part.shape[1]
    return whole


@st.composite
def pullbacks(draw, T, S, depth) -> Case:
    base, mask = draw(edge_sets(T + draw(st.integers(0, 3)), S + draw(st.integers(0, 3)), depth))
    targets, sources = (
        draw(st.permutations(range(mask.shape[0])))[:T],
        draw(st.permutations(range(mask.shape[1])))[:S],
    )
    chosen = [torch.tensor(x, dtype=torch.int64) for x in (targets, sources)]
    return algebra.pulled_back(base, *chosen), mask[targets][:, sources] if T and S else np.zeros(
        (T, S), dtype=bool
    )


@st.composite
def combined(draw, T, S, depth) -> Case:
    (a, x), (b, y) = draw(edge_sets(T, S, depth)), draw(edge_sets(T, S, depth))
    return draw(
        st.sampled_from(
            [
                (algebra.union(a, b), x | y),
                (algebra.intersection(a, b), x & y),
                (algebra.difference(a, b), x & ~y),
                (algebra.complement(a), ~x),
            ]
        )
    )


@st.composite
def flipped(draw, T, S, depth) -> Case:
    edges, mask = draw(edge_sets(S, T, depth))
    return edges.flip(), mask.T


def edge_sets(T, S, depth=1):
    """Any set of edges of the given sizes, and its mask; ``depth`` sets how far they nest."""
    kinds = [
        bands(T, S),
        rectangles(T, S),
        partitions(T, S),
        predicates(T, S),
        listings(T, S),
        cell_windows(T, S),
    ]
    if T == S and T > 0:
        kinds += [cells(T), neighbourhoods(T), balls(T)]
    if depth:
        kinds += [
            combined(T, S, depth - 1),
            pullbacks(T, S, depth - 1),
            flipped(T, S, depth - 1),
            composed(T, S, depth - 1),
        ]
        kinds += [behind_tokens(T, S, depth - 1)]
    return st.one_of(kinds)


SIDES = st.integers(0, 11)


@st.composite
def any_edge_set(draw) -> Case:
    kind = draw(st.sampled_from(["sized"] * 5 + ["square", "product", "blocks"]))
    if kind == "product":
        return draw(products())
    if kind == "blocks":
        return draw(blocks())
    T = draw(SIDES)
    return draw(edge_sets(T, T if kind == "square" else draw(SIDES), 2))
