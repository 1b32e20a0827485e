"""``cuda:0`` on a machine without one: its tensors hold real numbers on the CPU and obey the rules
of a device.

Every operation runs on the CPU. What a real device refuses is refused: operands on two devices (a
number without axes may join, as there), a table on the CPU indexed from the device, ``numpy()``,
and in SDPA a bias of another dtype than the queries'. So code that makes an index on the wrong
device falls here. What it cannot tell: kernels, rounding, atomics, speed, ``torch.compile``.

Import it before torch, in a process of its own.
"""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def built(folder: Path) -> Path:
    """The device that does nothing, compiled; raises CalledProcessError or OSError without a
    compiler that can."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch_folder = Path(spec.origin).parent
    library = folder / "no_device.so"
    if not library.exists():
        libs = torch_folder / "lib"
        words = [
            "g++",
            "-O0",
            "-w",
            "-std=c++20",
            "-shared",
            "-fPIC",
            f"-I{torch_folder / 'include'}",
        ]
        words += [
            str(Path(__file__).with_suffix(".cpp")),
            f"-L{libs}",
            "-lc10",
            "-ltorch_cpu",
            f"-Wl,-rpath,{libs}",
        ]
        subprocess.run([*words, "-o", str(library)], check=True, capture_output=True)
    return library


if "torch" not in sys.modules:
    ctypes.CDLL(str(built(Path(os.environ["NO_DEVICE"]))), mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

DEVICE = torch.device("cuda", 0)
INDEXING = ("aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class There(torch.Tensor):
    """A tensor on the device; ``inner`` is where its numbers are."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "There":
        layout = {
            "strides": inner.stride(),
            "storage_offset": inner.storage_offset(),
            "layout": inner.layout,
        }
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=DEVICE, **layout
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(operator, *args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> "There":
        if id(self) not in memo:
            memo[id(self)] = There(self.inner.clone()).requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                memo[id(self)]._is_param = True
        return memo[id(self)]

    def __repr__(self) -> str:
        return f"There({self.inner})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy


def run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation, on the CPU, if a device would run it."""
    name, leaves = operator.name(), tree_leaves((args, kwargs))
    here = any(isinstance(x, There) for x in leaves)
    if here and name not in ("aten::_to_copy", "aten::copy_"):
        apart = [
            x
            for x in leaves
            if isinstance(x, torch.Tensor) and not isinstance(x, There) and x.dim()
        ]
        if apart and not (name in INDEXING and isinstance(args[0], There)):
            raise RuntimeError(
                f"{name}: operands on cuda:0 and on the CPU, {[tuple(x.shape) for x in apart]}"
            )
    if name == "aten::_fused_sdp_choice":
        return 0  # plain operations
    if kwargs.get("device") is not None:
        here = torch.device(kwargs["device"]).type == "cuda"
    found = operator(*tree_map(_inside, args), **tree_map(_inside, kwargs))
    if "out" in kwargs or (operator._schema.is_mutable and name.split(".")[0].endswith("_")):
        return kwargs.get("out", args[0])
    if not here or name in ("aten::_local_scalar_dense", "aten::equal"):
        return found
    return tree_map(lambda x: There(x) if isinstance(x, torch.Tensor) else x, found)


def _inside(x: Any) -> Any:
    if isinstance(x, torch.device) and x.type == "cuda":
        return torch.device("cpu")
    return x.inner if isinstance(x, There) else x


def _made_there(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a tensor on the CPU and sends it: some write into an empty one,
    whose size There keeps."""

    def made(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        if device is None:
            return (
                make(*args, requires_grad=requires_grad, **kwargs)
                if requires_grad
                else make(*args, **kwargs)
            )
        cpu = "cpu" if torch.device(device).type == "cuda" else device
        return make(*args, device=cpu, **kwargs).to(device).requires_grad_(requires_grad)

    return made


_sdpa = torch.nn.functional.scaled_dot_product_attention


def _strict_sdpa(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any
) -> Any:
    """SDPA; its fast kernels on CUDA refuse a mask of another dtype, or read it as one of the
    queries'."""
    if query.is_cuda and attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype):
        raise RuntimeError("invalid dtype for bias - should match query's dtype")
    return _sdpa(query, key, value, attn_mask, *rest, **options)


torch.nn.functional.scaled_dot_product_attention = _strict_sdpa
for _name in ("tensor", "as_tensor", "arange", "linspace", "randperm", "eye"):
    setattr(torch, _name, _made_there(getattr(torch, _name)))
torch.cuda._lazy_init = lambda: None
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.synchronize = lambda *_: None
torch.cuda.mem_get_info = lambda *_: (8 << 30, 8 << 30)  # type: ignore[assignment]
torch.cuda.is_bf16_supported = lambda *_: True
torch.cuda.get_device_properties = lambda *_: SimpleNamespace(
    name="none", total_memory=8 << 30, major=9, minor=0, multi_processor_count=1
)
torch.__future__.set_overwrite_module_params_on_conversion(True)
torch.cuda.get_device_capability = lambda *_: (7, 0)  # for which Triton compiles nothing
torch.cuda.get_device_name = lambda *_: "none"
torch.cuda.memory_allocated = lambda *_: 0
torch.cuda.memory_reserved = lambda *_: 0
torch.cuda.max_memory_allocated = lambda *_: 0
torch.cuda.reset_peak_memory_stats = lambda *_: None
torch.Tensor.cuda = lambda self, *_: self.to(DEVICE)  # type: ignore[method-assign]


class Event:
    """An event of the host's clock: nothing runs beside the host."""

    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        return 1e3 * (end.at - self.at)


class Stream:
    """A stream that is always done."""

    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, stream: "Stream") -> None:
        pass


class Graph:
    """A CUDA graph that holds nothing."""

    def replay(self) -> None:
        pass


torch.cuda.Event = Event  # type: ignore[assignment,misc]
torch.cuda.Stream = Stream  # type: ignore[assignment,misc]
torch.cuda.CUDAGraph = Graph  # type: ignore[assignment,misc]
torch.cuda.current_stream = Stream  # type: ignore[assignment]
torch.cuda.stream = lambda _: nullcontext()
torch.cuda.graph = lambda _: nullcontext()  # type: ignore[assignment,misc]
_library = torch.library.Library("_", "IMPL", "CUDA")  # lives as long as the process
_library.fallback(run, "CUDA")
