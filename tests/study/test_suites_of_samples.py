"""A study file in which every sample has a graph of its own: clouds of points."""

from pathlib import Path

import pytest
import torch

from graphattn.study.arms import graphs_of
from graphattn.study.run import load, run_file

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
points = load(STUDIES / "points" / "study.py")


def test_clouds_are_of_radius_1_turned_and_read_by_their_nearest():
    pytest.importorskip("trimesh")
    data = points.data(60, 20)
    torch.testing.assert_close(data.pos.square().sum(-1).mean(-1), torch.ones(60))
    assert len(points.shapes()) == data.classes == 7
    assert float(data.pos.std(1).std()) > 0.05  # no axis is the same in all
    graphs = graphs_of("kNN 9", points.arms()["kNN 9"], data, 2)
    nearest = torch.cdist(data.pos[3], data.pos[3]).topk(9, largest=False).indices.sort(-1).values
    assert torch.equal(graphs.each[3].source.view(-1, 9).sort(-1).values, nearest)


@pytest.mark.slow
def test_a_quick_suite_trains_checks_and_reports(tmp_path):
    pytest.importorskip("trimesh")
    report = run_file(STUDIES / "points" / "study.py", tmp_path, quick=True, processes=0)
    assert report.counts == {"planned": 2, "done": 2, "capped": 0, "failed": 0}
    (about,) = report.plan["comparisons"].values()
    assert about["checks"] == {"relabelled full: bit for bit": True}
    assert str(report).startswith("# Study: points")
    assert "**Quick:** a smaller run than the study asks for" in str(report)
