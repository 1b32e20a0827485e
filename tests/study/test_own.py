"""Modules of the user's own in a study: counted, compared, read out and checked as ours are."""

import random

import pytest
import torch
from permuted_nodes import permuted
from tiny_study import HELD, SAMPLES, N, tiny_data, tiny_run
from torch import nn

import graphattn as ga
from graphattn import study
from graphattn.errors import ControlError, GraphAttnError, OptionError, ShapeError
from graphattn.study import asserts as checks
from graphattn.study.comparison import Comparison
from graphattn.study.figure import draw
from graphattn.study.network import network_of
from graphattn.study.train import Reading

WINDOW = ga.graphs.sliding_window(N, 3, causal=False)


class Summing(nn.Module):
    """Sums what a node reads, twice; it sees tokens, places, and nothing of the readout."""

    def __init__(self, data, width=6):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, width), nn.Linear(width, data.classes)
        self.places = nn.Embedding(data.num_nodes, width)

    def forward(self, inputs, graphs, places, pos):
        x = self.embedding(inputs) + self.places(places)
        for graph in graphs:
            x = x + torch.zeros_like(x).index_add(-2, graph.target, x[..., graph.source, :]).tanh()
        return self.head(x)


def compared(make=Summing, data=None, layers=2, **changes):
    arms = {"window": WINDOW, "each": lambda sample: WINDOW, "full": ga.graphs.full(N)}
    given = {"model": study.CustomModel(make, layers), "controls": ("full", "self"), **changes}
    return Comparison("c", arms, tiny_data() if data is None else data, **given)


@pytest.mark.parametrize("readout", ["mean", "token", "node"])
def test_a_module_is_read_out_as_ours_and_given_graphs_either_way(readout):
    data = tiny_data(targets=tiny_data().inputs) if readout == "node" else tiny_data()
    about = compared(data=data, readout=readout, token=2)
    torch.manual_seed(0)
    network = network_of(about.model, data, readout, "none", about.token)
    shared, each = (
        Reading(data, about.graphs[name])(network, torch.tensor([4, 9]))
        for name in ("window", "each")
    )
    torch.testing.assert_close(shared, each)
    nodes = network.module(data.inputs[[4, 9]], [WINDOW, WINDOW], torch.arange(N), None)
    torch.testing.assert_close(
        shared, {"mean": nodes.mean(1), "token": nodes[:, 2], "node": nodes}[readout]
    )
    assert permuted(about, about.graphs["window"], "none") <= 1e-9


def test_a_study_of_a_module_trains_goes_on_and_refuses_another(tmp_path):
    given = {
        "model": study.CustomModel(Summing, 2),
        "controls": ("full",),
        "seeds": 1,
        "budgets": study.Budget(None, 3),
    }
    first = tiny_run(tmp_path, **given)
    lines = (tmp_path / "trials.jsonl").read_text("utf-8")
    assert {row.positions for row in first.rows} == {"the module's"}  # it embeds places, or may
    assert draw(first).axes[0].get_title(loc="left") == "positions: the module's"
    assert [row.prediction["depends_on_most"] for row in first.rows] == [5, 7]
    assert not any(row.prediction["bag"] for row in first.rows)  # it was given places
    assert {one["parameters"] for one in first.records.of_key.values()} == {
        5 * 6 + 7 * 6 + 6 * 3 + 3
    }
    tiny_run(tmp_path, **given)
    assert (tmp_path / "trials.jsonl").read_text("utf-8") == lines
    with pytest.raises(OptionError, match="another readout, model or training"):
        tiny_run(
            tmp_path, **{**given, "model": study.CustomModel(lambda data: Summing(data, 8), 2)}
        )


def test_a_module_that_looks_past_its_graph_is_refused():
    class Peeks(Summing):
        def forward(self, inputs, graphs, places, pos):
            return (
                super().forward(inputs, graphs, places, pos)
                + self.embedding(inputs).mean(-2, keepdim=True)[..., :3]
            )

    with pytest.raises(
        ControlError, match=r"depends on node 0.* that 2 layers of window do not reach"
    ):
        checks.measured(compared(Peeks))
    with pytest.raises(ControlError, match=r"1 layer of window"):
        checks.measured(compared(lambda data: Twice(data), layers=1))


def test_a_module_that_does_not_read_its_graph_is_refused():
    class Alone(Summing):
        def forward(self, inputs, graphs, places, pos):
            return super().forward(inputs, [], places, pos)

    with pytest.raises(
        ControlError, match=r"reads nothing along its graphs.* that 2 layers of window reach"
    ):
        checks.measured(compared(Alone))


def test_a_module_may_start_behind_a_gate_of_zeros():
    class Gated(Summing):
        def __init__(self, data):
            super().__init__(data)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, inputs, graphs, places, pos):
            alone = super().forward(inputs, [], places, pos)
            return alone + self.gate * (super().forward(inputs, graphs, places, pos) - alone)

    class Peeks(Gated):
        def forward(self, inputs, graphs, places, pos):
            return super().forward(inputs, graphs, places, pos) + self.gate * inputs.sum(-1).view(
                -1, 1, 1
            )

    assert (
        checks.measured(compared(Gated))["window: nodes in reach are read, and no others"] is True
    )
    with pytest.raises(ControlError, match="reads more than its graphs"):
        checks.measured(compared(Peeks))


def test_a_module_that_cannot_be_trained_again_is_refused():
    """Of Python's own state no seed of a trial knows."""

    class Noisy(Summing):
        def forward(self, inputs, graphs, places, pos):
            return super().forward(inputs, graphs, places, pos) * random.random()

    about = compared(Noisy)
    with pytest.raises(ControlError, match="trained twice from one seed, gives the loss"):
        checks.measured(about)
    assert checks.measured(compared())["the same training twice: bit for bit"] is True


class Twice(Summing):
    def forward(self, inputs, graphs, places, pos):
        return super().forward(inputs, [*graphs, *graphs], places, pos)


class Pooled(Summing):
    def forward(self, inputs, graphs, places, pos):
        return super().forward(inputs, graphs, places, pos).mean(-2)


WRONG = {
    "must return the logits of all nodes, (32, 7, 3)": {"make": Pooled},
    "must return a torch.nn.Module with parameters to train, got None": {"make": lambda data: None},
    "must return a torch.nn.Module with parameters to train, got": {"make": lambda data: nn.ReLU()},
    "make must be a function of the data": {"make": 3},
    "layers must be": {"layers": 0},
    "positions must be 'none' with study.CustomModel": {"positions": ("learned",)},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_modules_are_refused(words):
    with pytest.raises(GraphAttnError) as error:
        checks.measured(compared(**WRONG[words]))
    assert words in str(error.value)


def test_a_module_that_others_cannot_import_trains_here_or_is_refused(tmp_path):
    local = {
        "model": study.CustomModel(lambda data: Summing(data)),
        "budgets": study.Budget(None, 1),
        "seeds": 1,
        "controls": (),
    }
    assert tiny_run(tmp_path / "here", **local, processes=None).counts["done"] == 1
    with pytest.raises(
        OptionError, match=r"processes=2 must import .* put it into a file of its own"
    ):
        tiny_run(tmp_path / "there", **{**local, "processes": 2})
    source = "from torch import nn\n\ndef make(data):\n    return nn.Linear(3, 2)\n"
    scope = {}
    exec(source, scope)
    with pytest.raises(OptionError, match="the source of make cannot be read"):
        study.CustomModel(scope["make"]).described(tiny_data())


def test_classes_of_pairs_are_a_table_that_reads_either_way():
    pairs = (torch.arange(N)[:, None] - torch.arange(N)).abs().clamp(max=3).expand(SAMPLES, N, N)
    pairs = (pairs + torch.arange(SAMPLES).view(-1, 1, 1) % 2).clone()
    data = tiny_data(pairs=pairs)
    arms = {
        "window": WINDOW,
        "each": lambda sample: ga.from_mask(sample.pairs <= 2) & WINDOW | WINDOW,
    }
    about = Comparison("c", arms, data, positions=("pairs",), controls=("full",))
    torch.manual_seed(0)
    network = network_of(about.model, data, "mean", "pairs")
    assert network.parameters_apart()[1] == 2 * 5
    for table in network.tables:
        nn.init.normal_(table.weight)
    shared, each = (
        Reading(data, about.graphs[name])(network, torch.tensor([4, 9]))
        for name in ("window", "each")
    )
    torch.testing.assert_close(shared, each)
    other = tiny_data(pairs=pairs.clamp(max=1))
    assert not torch.allclose(
        shared, Reading(other, about.graphs["window"])(network, torch.tensor([4, 9]))
    )
    assert permuted(about, about.graphs["window"], "pairs") <= 1e-9
    with pytest.raises(ShapeError, match=r"pairs must have shape \(83, 7, 7\)"):
        tiny_data(pairs=torch.zeros(HELD, N, N, dtype=torch.int64))


def test_a_comparison_takes_one_budget_and_the_positions_of_the_guide():
    model = study.CustomModel(Summing, layers=2)
    one = Comparison(
        "c",
        {"a": WINDOW},
        tiny_data(),
        model=model,
        budgets=study.Budget(steps=2),
        positions="the module's",
    )
    assert (one.budgets, one.positions) == ((study.Budget(steps=2),), ("the module's",))
