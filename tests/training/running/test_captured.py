"""Steps as CUDA graphs, on a stand-in for torch.cuda: what runs when, and what is refused.

That a replay computes the same on a GPU is a case of ``tests/gpu/gpu_cases.py``.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from graphattn.errors import BackendError, ShapeError
from graphattn.training import Captured
from graphattn.training.running import captured as module


class Cuda:
    """torch.cuda as far as it is used: a capture computes nothing, and a replay calls the step."""

    def __init__(self):
        self.mode = "default"
        self.events = []
        self.refused = ""
        self.captures = False

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: self.events.append("replay"))

    @contextmanager
    def graph(self, graph, capture_error_mode):
        assert capture_error_mode == "thread_local"
        self.events.append("capture")
        self.captures = True
        yield
        self.captures = False
        if self.refused:
            raise RuntimeError(self.refused)

    def Stream(self, device):
        return SimpleNamespace(wait_stream=lambda other: self.events.append("wait"))

    current_stream = Stream

    @contextmanager
    def stream(self, stream):
        yield

    def get_sync_debug_mode(self):
        return self.mode

    def set_sync_debug_mode(self, mode):
        self.mode = mode


class OnCuda(torch.Tensor):
    """A tensor that says that it is on CUDA."""

    @property
    def is_cuda(self):
        return True


@pytest.fixture
def cuda(monkeypatch):
    stand_in = Cuda()
    monkeypatch.setattr(module.torch, "cuda", stand_in)
    return stand_in


def tensor(*shape):
    return torch.randn(shape).as_subclass(OnCuda)


def test_three_calls_run_and_the_fourth_is_captured_once(cuda):
    seen = []

    def step(x):
        seen.append((cuda.captures, cuda.mode, x))
        return x * 2

    captured = Captured(step)
    inputs = [tensor(5, 3) for _ in range(6)]
    results = [captured(x) for x in inputs]
    assert [(captures, mode) for captures, mode, _ in seen] == [
        (False, "default"),
        (False, "default"),
        (False, "error"),
        (True, "default"),
    ]
    assert all(torch.equal(result, 2 * x) for result, x in zip(results[:3], inputs, strict=False))
    assert [event for event in cuda.events if event != "wait"] == ["capture", *["replay"] * 3]
    static = seen[3][2]
    assert torch.equal(static, inputs[5]), "inputs are copied to where the capture reads them"
    assert results[3] is results[5] is captured.output


def test_what_cannot_be_captured_is_refused_with_its_reason(cuda):
    captured = Captured(lambda x: x * 2)
    with pytest.raises(BackendError, match="needs tensors on a CUDA device, got cpu; call the"):
        captured(torch.ones(3))
    captured(tensor(5, 3))
    with pytest.raises(ShapeError, match=r"same shapes.* got .*\(5, 2\).* make another Captured"):
        captured(tensor(5, 2))
    cuda.refused = "operation not permitted when stream is capturing\nmore"
    captured(tensor(5, 3)), captured(tensor(5, 3))
    with pytest.raises(BackendError, match="captured: operation not permitted when stream is capt"):
        captured(tensor(5, 3))


def test_a_step_that_waits_is_refused_before_it_is_captured(cuda):
    def step(x):
        if cuda.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return x

    captured = Captured(step)
    captured(tensor(3)), captured(tensor(3))
    with pytest.raises(BackendError, match="must not synchronize with the device"):
        captured(tensor(3))
    assert cuda.mode == "default"
    assert "capture" not in cuda.events


def test_other_errors_of_a_step_stay_as_they_are(cuda):
    def step(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        Captured(step)(tensor(3))
