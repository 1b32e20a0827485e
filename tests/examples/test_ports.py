"""The seven models of the guide's page "Port a model": outputs and all gradients, in float64."""

import re
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "port_a_model.md"
PARTS = re.split(r"^## (.*)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
BLOCKS = {
    name: re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)
    for name, text in zip(PARTS[1::2], PARTS[2::2], strict=True)
}
NEAR = {"SAM": 1e-5}  # its softmax is in float32


@pytest.mark.parametrize("name", BLOCKS)
def test_a_port_has_the_outputs_and_gradients_of_the_original(name, monkeypatch):
    monkeypatch.setattr(torch, "randn", _float64(torch.randn))
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        names = {}
        exec(compile(BLOCKS[name], name, "exec"), names)
    finally:
        torch.set_default_dtype(default)
    inputs = [x.detach().requires_grad_() for x in names["inputs"]]
    leaves = [*inputs, *names["parameters"]]
    before, after = (names[call](*inputs) for call in ("before", "after"))
    assert after.dtype == torch.float64
    near = NEAR.get(name, 1e-11)
    assert torch.allclose(before, after, rtol=near, atol=near)
    cotangent = torch.randn(before.shape, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(output, leaves, cotangent, allow_unused=True)
        for output in (before, after)
    ]
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            scale = float(theirs.abs().max())
            assert torch.allclose(mine, theirs, rtol=0, atol=near * max(1.0, scale))
            assert scale > 0


def _float64(draw):
    def drawn(*size, **options):
        return draw(*size, **{"dtype": torch.float64} | options)

    return drawn
