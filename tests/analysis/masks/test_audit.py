"""Wrong masks, written by hand as people write them, are found and named; right ones are accused of
nothing.
"""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import GraphAttnError, graphs
from graphattn.graph import algebra
from graphattn.mistakes.graphs.search import mistakes


def natten(height, width, kernel, clamp_rows, clamp_columns):
    """FlexAttention's mask of a neighbourhood; the clamps are the last row and column that a window
    may hold.
    """

    def mask_mod(b, h, q_idx, kv_idx):
        row, column = q_idx // width, q_idx % width
        row = row.clamp(kernel // 2).clamp(max=clamp_rows - 1 - kernel // 2)
        column = column.clamp(kernel // 2).clamp(max=clamp_columns - 1 - kernel // 2)
        near_row = (row - kv_idx // width).abs() <= kernel // 2
        return near_row & ((column - kv_idx % width).abs() <= kernel // 2)

    return mask_mod


@pytest.mark.parametrize(("height", "width"), [(7, 11), (11, 7), (5, 13)])
def test_a_neighbourhood_that_clamps_rows_by_the_width_is_named(height, width):
    expect = graphs.grid_neighbourhood((height, width), (3, 3), causal=False)
    assert ga.audit(natten(height, width, 3, height, width), expect).ok
    wrong = ga.audit(natten(height, width, 3, width, width), expect)
    assert not wrong.ok
    assert len(wrong.diagnosis) == 1
    assert wrong.diagnosis[0].startswith("neighbourhood clamps rows by the width: its windows are")
    both = ga.audit(natten(height, width, 3, width, height), expect)  # as attention-gym has it
    assert both.diagnosis[0].startswith(
        "neighbourhood clamps rows by the width and columns by the height"
    )
    other = ga.audit(natten(height, width, 3, height, height), expect)
    assert other.diagnosis[0].startswith("neighbourhood clamps columns by the height")


def test_on_a_square_grid_the_same_mistake_is_none():
    assert ga.audit(
        natten(9, 9, 3, 9, 9), graphs.grid_neighbourhood((9, 9), (3, 3), causal=False)
    ).ok


def test_a_causal_table_with_two_future_entries():
    mask = np.tri(8, dtype=bool)
    mask[4:6, 6] = True
    found = ga.audit(mask, graphs.causal(8))
    assert (found.too_many, found.missing, found.diagnosis) == (2, 0, ())
    (group,) = found.groups
    assert group.kind == "too many in the future (a target reads a later source)"
    assert (group.count, group.examples, group.where) == (2, ((6, 4), (6, 5)), "all of source 6")
    assert "6 -> 4, 6 -> 5" in str(found)


def shifted(size, cell, shift, wrap=False):
    place = torch.arange(size) - shift
    return (place % size if wrap else place).div(cell, rounding_mode="floor")


def grid_mask(rows, columns):
    """From labels of rows and of columns: a pair reads itself where both are equal."""
    label = (rows[:, None] * 1000 + columns[None, :]).flatten()
    return label[:, None] == label[None, :]


def test_each_known_mistake_is_named():
    token = torch.arange(23)
    apart = token[:, None] - token
    window, both = (
        graphs.sliding_window(23, 5, causal=True),
        graphs.sliding_window(23, 7, causal=False),
    )
    packed = graphs.documents(lengths=(7, 1, 15), causal=True)
    hub, longformer = (token == 0) | (token == 9), graphs.sliding_window(23, 3, causal=False)
    longformer = longformer | graphs.global_tokens(23, (0, 9))
    swin = graphs.window_partition((6, 10), (3, 5), shift=(1, 2))
    grid, y, x = (
        graphs.grid_neighbourhood((7, 11), (3, 5), causal=False),
        torch.arange(77) // 11,
        torch.arange(77) % 11,
    )
    near = ((y[:, None] - y).abs() <= 1) & ((x[:, None] - x).abs() <= 2)
    place = torch.arange(77) % 7 * 11 + torch.arange(77) // 7
    cases = {
        "rows swapped": ((apart <= 0) & (apart > -5), window),
        "inverted mask": ((apart < 0) | (apart >= 5), window),
        "mask ignored": (torch.ones(23, 23, dtype=torch.bool), window),
        "self-loops missing": ((apart > 0) & (apart < 5), window),
        "self-loops added": (window.mask(), window - graphs.self_loops(23)),
        "reads as far ahead as back": (apart.abs() < 5, window),
        "one source too many in the past": ((apart >= 0) & (apart <= 5), window),
        "one source too few in the past": ((apart >= 0) & (apart < 4), window),
        "one source too many in the future": ((apart <= 3) & (apart >= -4), both),
        "one source too few in the future": ((apart <= 3) & (apart >= -2), both),
        "-3 <= t - s <= 4 where -3 <= t - s <= 3": ((apart <= 4) & (apart >= -3), both),
        "-3 <= t - s <= 2 where -3 <= t - s <= 3": ((apart <= 2) & (apart >= -3), both),
        "align='start' where 'end' was meant": (
            torch.ones(5, 9).tril().bool(),
            graphs.causal(5, 9),
        ),
        "align='end' where 'start' was meant": (
            torch.ones(5, 9).tril(4).bool(),
            graphs.causal(5, 9, align="start"),
        ),
        "clamp=False where True was meant": (near, grid),
        "clamp=True where False was meant": (
            grid.mask(),
            graphs.grid_neighbourhood((7, 11), (3, 5), causal=False, clamp=False),
        ),
        "grid numbered down the columns": (
            grid.mask()[place][:, place],
            graphs.grid_neighbourhood((7, 11), (3, 5), causal=False),
        ),
        "window=15 where 7 was meant, as if counted on each side": (apart.abs() <= 7, both),
        "window=13 where 7 was meant, as if twice": (apart.abs() < 7, both),
        "window=2 where 5 was meant": ((apart >= 0) & (apart < 2), window),
        "causal=True where False was meant": ((apart >= 0) & (apart < 7), both),
        "causal=False where True was meant": (apart.abs() <= 2, window),
        "nothing ahead of the target is read": ((apart >= 0) & (apart <= 3), both),
        "borders of lengths ignored": (apart >= 0, packed),
        "read by all, but do not read": (apart.abs().le(1) | hub, longformer),
        "read all, but are not read": (apart.abs().le(1) | hub[:, None], longformer),
        "shift=(0, 0) where (1, 2) was meant": (
            grid_mask(shifted(6, 3, 0), shifted(10, 5, 0)),
            swin,
        ),
        "shift=(2, 3) where (1, 2) was meant": (
            grid_mask(shifted(6, 3, 2), shifted(10, 5, 3)),
            swin,
        ),
        "read across the border": (
            grid_mask(shifted(6, 3, 1, True), shifted(10, 5, 2, True)),
            swin,
        ),
    }
    for words, (mask, expect) in cases.items():
        found = ga.audit(mask, expect)
        assert any(words in name for name in found.diagnosis), (words, found)
        assert words in str(found)
        assert ga.audit(expect.mask(), expect).ok


def names(mask, expect):
    return ga.audit(mask, expect).diagnosis


@pytest.mark.slow
def test_windows_taken_wrongly_alone_and_within_an_expression():
    apart = torch.arange(61)[:, None] - torch.arange(61)
    nine, causal = (
        graphs.sliding_window(61, 9, causal=False),
        graphs.sliding_window(61, 8, causal=True),
    )
    tokens, packed = (
        graphs.global_tokens(61, (3, 50)),
        graphs.documents(lengths=(20, 41), causal=False),
    )
    for around, expression in (
        (nine, lambda mask: mask),
        (nine.materialise(), lambda mask: mask),
        (nine | tokens, lambda mask: mask | tokens.mask()),
        (nine & packed, lambda mask: mask & packed.mask()),
    ):
        for taken, words in (
            (apart.abs() <= 9, "window=19 where 9 was meant, as if counted"),
            (apart.abs() < 9, "window=17 where 9 was meant, as if twice"),
            (apart.abs() <= 2, "window=5 where 9 was meant"),
            (apart.abs() <= 7, "window=15 where 9 was meant"),
        ):
            assert words in names(expression(taken), around)[0]
        assert names(expression(apart.abs() <= 4), around) == ()  # right
    assert (
        "window=16 where 8 was meant, as if twice" in names((apart >= 0) & (apart < 16), causal)[0]
    )
    assert "window=4 where 8 was meant" in names((apart >= 0) & (apart < 4), causal)[0]
    # no windows
    for graph, window in (
        (graphs.full(61), "61, causal=False"),
        (graphs.causal(61), "31, causal=True"),
    ):
        other = f"another graph: the mask is that of sliding_window(61, {window})"
        assert names(graph.mask() & (apart.abs() <= 30), graph) == (other,)


@pytest.mark.filterwarnings("error")  # graphs of mistakes are the audit's own
def test_packed_documents_that_are_ignored():
    ids = torch.tensor([4, 4, 1, 1, 1, 4, 2, 2, 2, 2, 7])
    causal, every = graphs.documents(ids, causal=True), graphs.documents(ids, causal=False)
    lower = torch.ones(11, 11).tril().bool()
    assert "ids ignored, as if all were equal" in names(lower, causal)[0]
    assert any(
        "mask ignored" in name for name in names(torch.ones(11, 11, dtype=torch.bool), causal)
    )
    assert any("ids ignored" in name for name in names(torch.ones(11, 11, dtype=torch.bool), every))
    assert names(causal.mask(), causal) == ()
    one_more = causal.mask()
    one_more[10, 9] = True  # one border crossed is not all of them
    assert names(one_more, causal) == ()
    windowed = graphs.sliding_window(11, 3, causal=True) & every
    assert (
        "left out of sliding_window(11, 3, causal=True) & documents("
        in names(graphs.sliding_window(11, 3, causal=True).mask(), windowed)[0]
    )


def test_every_wrong_entry_is_counted_once():
    generator = torch.Generator().manual_seed(0)
    expect = graphs.sliding_window(29, 7, causal=False)
    flipped = torch.rand(29, 29, generator=generator) < 0.1
    mask = expect.mask() ^ flipped
    found = ga.audit(mask, expect)
    assert (found.too_many, found.missing) == (
        int((flipped & mask).sum()),
        int((flipped & ~mask).sum()),
    )
    assert sum(group.count for group in found.groups) == int(flipped.sum())
    assert found.diagnosis == ()
    for group in found.groups:
        assert all(bool(flipped[t, s]) for s, t in group.examples)
    assert found.to_dict()["ok"] is False
    diagonal = ga.audit(expect.mask() | torch.ones(29, 29).triu(9).tril(9).bool(), expect)
    assert diagonal.groups[0].where == "all at distance -9"


def test_masks_of_every_kind_are_taken():
    expect = graphs.causal(6)
    kinds = (
        torch.ones(6, 6).tril().bool(),
        np.tri(6, dtype=bool),
        lambda b, h, q_idx, kv_idx: q_idx >= kv_idx,
        lambda t, s: s <= t,
        graphs.causal(6).materialise(),
    )
    for mask in kinds:
        assert ga.audit(mask, expect).ok
    assert str(ga.audit(kinds[0], expect)).startswith("ok: all 36 entries")
    assert ga.audit(graphs.causal(100_000), graphs.causal(100_000)).ok
    cross = ga.audit(torch.ones(3, 5, dtype=torch.bool), graphs.causal(3, 5))
    assert [group.kind for group in cross.groups] == ["too many"]


def test_what_is_no_mask_is_refused():
    block_mask = ga.convert.to_block_mask(graphs.causal(6))
    for audited in ((block_mask, graphs.causal(6)), (graphs.causal(6), block_mask)):
        with pytest.raises(
            GraphAttnError,
            match=r"got BlockMask; pass graphattn.convert.from_block_mask\(block_mask\)",
        ):
            ga.audit(*audited)
    with pytest.raises(
        GraphAttnError, match="mask must have 6 targets and 6 sources, got AttentionGraph"
    ):
        ga.audit(torch.ones(5, 5, dtype=torch.bool), graphs.causal(6))
    with pytest.raises(GraphAttnError, match="must be bool"):
        ga.audit(torch.zeros(6, 6), graphs.causal(6))
    with pytest.raises(GraphAttnError, match="expect must be"):
        ga.audit(torch.ones(5, 5, dtype=torch.bool), torch.ones(5, 5, dtype=torch.bool))
    with pytest.raises(GraphAttnError, match="smaller size"):
        ga.audit(lambda t, s: s <= t, graphs.causal(100_000))
    with pytest.raises(GraphAttnError, match="audit of 4,999,950,000 differences"):
        ga.audit(graphs.full(100_000), graphs.causal(100_000))


def test_a_rule_that_nobody_can_list_is_audited():
    causal = ga.graphs.causal(40_000)
    found = ga.audit(causal.without_self_loops(), causal)
    assert found.missing == 40_000
    assert any("self-loops" in each for each in found.diagnosis)


def test_what_is_nearly_full_is_not_listed(monkeypatch):
    listed, made = [], algebra.listed

    def counted(target, *rest, **known):
        listed.append(target.numel())
        return made(target, *rest, **known)

    monkeypatch.setattr(algebra, "listed", counted)
    mask = torch.ones(512, 512, dtype=torch.bool)
    mask[5, 7] = False
    report = ga.audit(mask, ga.graphs.full(512))
    assert (report.too_many, report.missing) == (0, 1)
    assert report.groups[0].examples == ((7, 5),)
    assert max(listed) <= 1


def test_an_audit_is_true_if_the_mask_is_the_graph():
    assert ga.audit(ga.graphs.causal(8).mask(), ga.graphs.causal(8))
    assert not ga.audit(ga.graphs.full(8).mask(), ga.graphs.causal(8))


def test_an_audit_that_costs_more_than_the_budget_is_refused_before_it_begins():
    million, other = (
        graphs.sliding_window(10**6, 9, causal=True),
        graphs.sliding_window(10**6, 8, causal=True),
    )
    with pytest.raises(
        GraphAttnError,
        match=r"audit of sliding_window\(1000000, 9, causal=True\) would take 128,000,000 entries \(limit",
    ):
        ga.audit(million, other, budget=127_999_999)
    with pytest.raises(GraphAttnError, match="would take 1,280,000,000 entries"):
        ga.audit(
            graphs.sliding_window(10**7, 9, causal=True),
            graphs.sliding_window(10**7, 8, causal=True),
        )
    with pytest.raises(
        GraphAttnError, match=r"a function on all pairs .* would take 64 calls .* try budget=64"
    ):
        ga.audit(lambda t, s: s <= t, graphs.causal(8), budget=63)
    assert ga.audit(lambda t, s: s < t, graphs.causal(8), budget=64 * 2).missing == 8
    with pytest.raises(GraphAttnError, match=r"audit of 36 differences .* try budget=144"):
        ga.audit(graphs.full(8).mask() & False, graphs.causal(8), budget=143)
    with pytest.raises(GraphAttnError, match="budget must be a whole number"):
        ga.audit(million, other, budget=0)


def test_mistakes_that_cost_more_than_the_budget_are_not_looked_for_and_the_answer_says_so():
    points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    expect, given = graphs.knn(points, 5), graphs.knn(points, 4)
    few = ga.audit(given, expect, budget=10**5)
    assert (few.missing, few.diagnosis) == (200, ())
    assert "no mistake was looked for" in str(few)
    needed = int(few.left_out.split("budget=")[1].split(".")[0])
    assert needed > 10**5
    assert ga.audit(given, expect, budget=needed - 1).left_out == few.left_out
    enough = ga.audit(given, expect, budget=needed)
    assert "k=4 where 5 was meant" in enough.diagnosis[0]
    assert enough.left_out == ""
    window, back = (
        graphs.sliding_window(300, 9, causal=True),
        graphs.sliding_window(300, 9, causal=True).reverse(),
    )
    wrong = back - window, window - back
    assert mistakes(window, back, wrong, 300 * 64)[0][0].startswith("edge_index rows swapped")
    names, left_out = mistakes(window, back, wrong, 300 * 64 - 1)
    assert names == ()
    assert "some were not looked for; try budget=38400" in left_out


def test_periodic_graphs_are_refused_by_the_name_of_the_function():
    pos = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.radius(pos, 0.8, cell=torch.eye(3))
    with pytest.raises(ga.errors.GraphError, match="audit is of pairs of nodes"):
        ga.audit(graph, graph)


def test_sources_among_the_tokens_are_not_called_padding():
    meant = graphs.documents(lengths=(6, 4, 3), causal=True)
    first = torch.isin(torch.arange(13), torch.tensor([0, 6, 10]))
    read = ga.from_rule(lambda t, s: first[s] & (s <= t), 13)
    passed = (meant | (graphs.global_tokens(13, [0, 6, 10]) & graphs.causal(13))).k_hop(3)
    found = ga.audit(passed, meant | read)
    assert found.diagnosis[0].startswith("documents compared by >= in place of ==")
    assert "padding" not in str(found)
    assert "\n    or, with the same edges: " in str(found)
    chosen = ga.from_mask(graphs.causal(13).mask() & first & first[:, None])
    assert ga.audit(graphs.causal(13), chosen).diagnosis == (
        "the choice of sources left out: sources 1, 2, 3, 4, 5, 7, ... are read, too",
    )


def test_nodes_of_a_network_have_no_past():
    """Of a listed symmetric graph; those of a symmetric rule are in an order, as tokens are."""
    ring = ga.graphs.circulant(11, (-3, 3))
    network = ga.from_edge_index(ring.edge_index, num_nodes=11)
    moved = ga.from_edge_index(ga.graphs.circulant(11, (-2, 2)).edge_index, num_nodes=11)
    text = str(ga.audit(moved | ga.graphs.self_loops(11), network))
    assert "22 too many: " in text
    assert "22 missing: " in text
    assert "11 too many on the diagonal" in text
    assert "future" not in text
    assert "past" not in text
    assert "in the future" in str(ga.audit(moved, ring))
