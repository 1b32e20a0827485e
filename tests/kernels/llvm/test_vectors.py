"""Functions of vectors in machine code, beside NumPy's."""

import ctypes

import numpy as np
import pytest
import torch

from graphattn.kernels.arrays import Kinds
from graphattn.kernels.llvm import native
from graphattn.kernels.llvm.code import Code
from graphattn.kernels.llvm.native import Integer, Sums
from graphattn.kernels.llvm.vectors import exp, log, tanh


def exps(code: Code, kinds: Kinds, x: Sums, n: Integer) -> None:
    for i, lanes in code.vectors(n, 8):
        x.write(i, exp(x.read(i, lanes)))


def logs(code: Code, kinds: Kinds, x: Sums, n: Integer) -> None:
    for i, lanes in code.vectors(n, 8):
        x.write(i, log(x.read(i, lanes)))


def tanhs(code: Code, kinds: Kinds, x: Sums, n: Integer) -> None:
    for i, lanes in code.vectors(n, 8):
        x.write(i, tanh(x.read(i, lanes)))


def of(function, x):
    """A function at all numbers of a tensor."""
    kinds = Kinds(x.dtype, torch.int32, x.dtype, 0)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
        native.address_of(function, kinds)
    )
    y = x.clone()
    run(y.data_ptr(), y.numel())
    return y


def units(x, exact):
    """The largest difference from exact numbers, in units of the last place."""
    exact = torch.from_numpy(exact)
    unit = torch.from_numpy(np.spacing(exact.to(x.dtype).abs().numpy()))
    return ((x.to(exact.dtype) - exact).abs() / unit).max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_exponential_is_right_to_the_last_place(dtype):
    x = torch.cat([torch.linspace(-86, 0, 8000), torch.linspace(-1e-3, 0, 800)]).to(dtype)
    assert units(of(exps, x), np.exp(x.numpy().astype(np.longdouble)).astype(np.float64)) < 2.5
    edges = torch.tensor([-1e9, -torch.inf, torch.nan, 0.0, -800.0, -0.0, -1e-30, -5e-324]).to(
        dtype
    )
    assert of(exps, edges).nan_to_num(-1.0).tolist() == [0, 0, -1, 1, 0, 1, 1, 1]


def test_a_logarithm_is_right_to_the_last_place():
    x = torch.logspace(-300, 300, 8000, dtype=torch.float64)
    assert units(of(logs, x), np.log(x.numpy().astype(np.longdouble)).astype(np.float64)) < 2.5
    near = torch.linspace(0.5, 1.5, 8000, dtype=torch.float64)
    assert (of(logs, near) - near.log()).abs().max() < 3e-16
    assert of(logs, torch.ones(8, dtype=torch.float64)).tolist() == [0.0] * 8
    assert of(logs, torch.full((8,), torch.nan, dtype=torch.float64)).isnan().all()


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 4e-7), (torch.float64, 4e-16)])
def test_a_hyperbolic_tangent_is_right_to_a_few_last_places(dtype, most):
    x = torch.linspace(-30, 30, 8000, dtype=dtype)
    assert (of(tanhs, x).double() - x.double().tanh()).abs().max() < most
    edges = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0] * 2, dtype=dtype)
    assert of(tanhs, edges).nan_to_num(5.0)[:4].tolist() == pytest.approx([1, -1, 5, 0])
