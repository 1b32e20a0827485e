"""What would not fit is refused before it runs."""

import pytest
import torch

import graphattn as ga
from graphattn.backends import device
from graphattn.exactness import measure
from graphattn.exactness.operator import GraphSubject

CPU = torch.device("cpu")


@pytest.mark.parametrize("backend", ["edges", "message_passing"])
def test_listing_two_hundred_million_edges_does_not_fit_eight_gib(backend):
    subject = GraphSubject(ga.graphs.causal(20_000))
    case = subject.cases[0]
    refused = measure.too_large(subject, case, torch.float64, backend, 8 << 30)
    assert "8,589,934,592 may be taken" in refused[0].reasons[0]
    assert not measure.too_large(subject, case, torch.float64, backend, 1 << 50)


def test_a_mask_in_float64_counts_the_numbers_it_is_turned_into():
    """Measured: 255 MB for 4,000 x 4,000 pairs."""
    subject = GraphSubject(ga.graphs.sliding_window(4_000, 33, causal=True))
    call = (subject, subject.cases[0], torch.float64, "dense")
    assert measure.too_large(*call, 250_000_000, False)
    assert not measure.too_large(*call, 260_000_000, False)
    assert measure.too_large(*call, 260_000_000, True)


def test_a_control_group_limits_what_is_free(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "_GROUPS", tmp_path)
    everything = device.free_bytes(CPU)
    (tmp_path / "memory.max").write_text("max\n", encoding="utf-8")
    (tmp_path / "memory.current").write_text("700\n", encoding="utf-8")
    assert device.free_bytes(CPU) > 1 << 20
    (tmp_path / "memory.max").write_text("1700\n", encoding="utf-8")
    assert device.free_bytes(CPU) == 1000 < everything


def test_a_group_beyond_its_limit_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "_GROUPS", tmp_path)
    (tmp_path / "memory.max").write_text("1000\n", encoding="utf-8")
    (tmp_path / "memory.current").write_text("1500\n", encoding="utf-8")
    assert device.free_bytes(CPU) == 0


def test_eight_gib_are_free_where_the_system_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "_GROUPS", tmp_path)
    monkeypatch.setattr(device, "_MEMORY", tmp_path / "meminfo")
    assert device.free_bytes(CPU) == 8 << 30
    (tmp_path / "meminfo").write_text("MemTotal: 7 kB\n", encoding="utf-8")
    assert device.free_bytes(CPU) == 8 << 30
    (tmp_path / "meminfo").write_text("MemTotal: 7 kB\nMemAvailable:  5 kB\n", encoding="utf-8")
    assert device.free_bytes(CPU) == 5 * 1024
