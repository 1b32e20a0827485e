"""Pictures of runs."""

import itertools

import pytest
from bench_rows import MACHINE, case

from graphattn.bench import Report
from graphattn.bench.picture import APART, STYLES, _spread, draw
from graphattn.errors import OptionError


def report(*cases):
    return Report(dict(MACHINE), {"repeats": 7, "limit_s": 20.0, "peers": []}, list(cases))


def sweep():
    return report(*(case(f"knn16 {n}", 16 * n, n / 1000) for n in (1000, 4000, 16_000)))


def test_a_sweep_is_time_against_edges_with_names_on_the_lines():
    figure = draw(sweep())
    forward, both = figure.axes
    assert {ax.get_xscale() for ax in figure.axes} | {ax.get_yscale() for ax in figure.axes} == {"log"}
    assert (forward.get_xlabel(), forward.get_ylabel()) == ("edges", "time (ms)")
    assert {text.get_text() for text in forward.texts} == {"graphattn", "PyG", "FlexAttention", "memory floor"}
    assert {text.get_text() for text in both.texts} == {"graphattn", "PyG", "memory floor"}
    ours = next(line for line in forward.lines if line.get_color() == STYLES["auto"][0])
    assert list(ours.get_xdata()) == [16_000, 64_000, 256_000]
    assert list(ours.get_ydata()) == [2.0, 8.0, 32.0]


@pytest.mark.slow
def test_names_on_the_lines_do_not_overlap_or_leave_the_picture():
    figure = draw(sweep())
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_labels_move_no_more_than_they_must():
    assert _spread([0.0, 100.0]) == [0.0, 100.0]
    placed = _spread([10.0, 10.0, 11.0, 90.0, 91.0])
    assert all(b - a >= APART - 1e-9 for a, b in itertools.pairwise(placed))
    assert sum(placed[:3]) == pytest.approx(31.0)


def test_without_a_sweep_it_is_ratios():
    figure = draw(report(case("knn16"), case("mesh", factor=2.0)))
    forward, both = figure.axes
    assert forward.get_xscale() == "log"
    assert [label.get_text() for label in forward.get_yticklabels()] == ["knn16", "mesh"]
    by_name = {line.get_label(): line for line in forward.lines}
    assert list(by_name["PyG"].get_xdata()) == [25.0, 25.0]
    assert list(by_name["PyG"].get_ydata()) == [0, -1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["graphattn", "PyG", "FlexAttention"]
    assert "FlexAttention" not in {line.get_label() for line in both.lines}


def test_colours_and_markers_all_differ():
    assert len({colour for colour, _ in STYLES.values()}) == len({mark for _, mark in STYLES.values()}) == len(STYLES)


def test_nothing_to_draw():
    empty = case()
    empty.rows = empty.rows[-1:]
    with pytest.raises(OptionError, match="no peer could be timed"):
        draw(report(empty))
