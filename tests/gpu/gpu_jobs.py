"""What a child of the fork server does: cases twice, a figure, a variant of a kernel."""

import hashlib
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gpu_cases
import gpu_figures
import gpu_tune
import torch
from torch import Tensor

Say = Callable[[dict[str, Any]], None]
#: Backends, and groups of cases, that promise them; torch's own kernels add atomically.
SAME_BITS = ("edges", "compacted")


def imported() -> dict[str, Any]:
    """What is known without touching CUDA."""
    assert not torch.cuda.is_initialized()
    planted = _planted()
    cases = [{"name": case.name, "group": case.group} for case in [*planted, *gpu_cases.cases()]]
    names = [figure.name for figure in gpu_figures.FIGURES]
    figures = [*names, *gpu_figures.STEPS]
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cases": cases, "figures": figures,
            "peers": {figure.name: list(figure.peers) for figure in gpu_figures.FIGURES},
            "variants": list(gpu_tune.VARIANTS), "tuned": list(gpu_tune.SHAPES)}  # fmt: skip


def _planted() -> list[Any]:
    """Cases with faults, to rehearse what is said of them; from the file in GPU_PLANTED."""
    path = os.environ.get("GPU_PLANTED")
    if not path:
        return []
    spec = importlib.util.spec_from_file_location("planted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    planted: list[Any] = module.cases()
    return planted


def about(say: Say, device: str) -> None:
    """The device, or that it is missing."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        say(
            {"missing": f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'none'}"}
        )
        return
    answer: dict[str, Any] = {"gpu": "the CPU, to rehearse"}
    if torch.device(device).type == "cuda":
        seen = torch.cuda.get_device_properties(device)
        answer = {
            "gpu": seen.name,
            "gpu_bytes": seen.total_memory,
            "capability": f"{seen.major}.{seen.minor}",
        }
        answer |= {
            "multiprocessors": seen.multi_processor_count,
            "bfloat16": torch.cuda.is_bf16_supported(),
        }
    say({"about": answer})


def cases(say: Say, device: str, names: list[str]) -> None:
    """Each case twice, on memory full of NaN; the bits of the second run are those of the first."""
    place = _settled(device)
    chosen = {case.name: case for case in [*_planted(), *gpu_cases.cases()]}
    for name in names:
        start = time.perf_counter()
        results, bits = _run(chosen[name], place)
        answer: dict[str, Any] = {"name": name, "results": results}
        if gpu_cases.is_right(results):
            answer["first_s"] = round(time.perf_counter() - start, 3)
            again, bits_again = _run(chosen[name], place)
            differ = sorted(backend for backend in bits if bits[backend] != bits_again.get(backend))
            answer["differ"] = differ
            promised = chosen[name].group in SAME_BITS
            faults = [backend for backend in differ if promised or backend in SAME_BITS]
            if not gpu_cases.is_right(again):
                answer["results"] = again
            elif faults:
                answer["results"] = [
                    *again,
                    {"backend": faults[0], "ok": False, "raised": "two runs differ in bits"},
                ]
        answer["seconds"] = round(time.perf_counter() - start, 3)
        say({"case": answer})
        if not gpu_cases.is_right(answer["results"]) and gpu_cases.context_lost(place):
            raise RuntimeError("the context is lost")


def _settled(device: str) -> torch.device:
    """The device, with products in full float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    if device == "cpu":
        torch.set_num_threads(1)  # tensors are small
    return torch.empty(0, device=device).device  # "cuda" is "cuda:0"


def _run(case: Any, device: torch.device) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Results, and digests of all that each backend gave, tensors and the numbers of its
    results."""
    with recorded_bits() as bits:
        try:
            poison(device)
            results = case.run(device)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        except Exception as error:
            results = [{"ok": False, "raised": gpu_cases.raised(error)}]
    for result in results:
        digest = bits.setdefault(result.get("backend", case.name), hashlib.blake2b())
        digest.update(json.dumps(result, default=str).encode())
    return results, {backend: digest.hexdigest() for backend, digest in bits.items()}


def poison(device: torch.device) -> None:
    """Fill the memory that the allocator gives out next with NaN, in small blocks and in large
    ones."""
    if device.type != "cuda":
        return
    held = [
        torch.full((size,), torch.nan, device=device)
        for size in [1 << 7] * 512 + [1 << 16] * 64 + [1 << 28]
    ]
    torch.cuda.synchronize(device)
    del held


@contextmanager
def recorded_bits() -> Iterator[dict[str, Any]]:
    """Digests of all that :func:`measure_backend` measures, by backend."""
    module: Any = sys.modules["graphattn.exactness.measure"]
    before, bits = module.measure_backend, {}

    def recorded(subject: Any, case: Any, dtype: torch.dtype, backend: str, *rest: Any) -> Any:
        values: dict[str, Tensor] = before(subject, case, dtype, backend, *rest)
        digest = bits.setdefault(backend, hashlib.blake2b())
        for value in values.values():
            digest.update(
                value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            )
        return values

    module.measure_backend = recorded
    try:
        yield bits
    finally:
        module.measure_backend = before


def ceilings(say: Say, device: str) -> None:
    """What the card does at most."""
    say({"ceilings": gpu_figures.ceilings(torch.empty(0, device=device).device)})


def figure(say: Say, device: str, name: str, who: str, copy_gb_per_s: float) -> None:
    """The times of a shape, ours or a peer's."""
    torch.backends.cuda.matmul.allow_tf32 = True  # peers at their best
    place = torch.empty(0, device=device).device
    if name in gpu_figures.STEPS:
        gpu_figures.step(say, name, place)
    else:
        gpu_figures.figure(say, name, place, who, copy_gb_per_s)


def tune(say: Say, device: str, shape: str, variant: str) -> None:
    """A shape with one variant of the kernels' constants."""
    say({"row": gpu_tune.measured(shape, variant, torch.empty(0, device=device).device)})


JOBS: dict[str, Callable[..., None]] = {
    "about": about,
    "ceilings": ceilings,
    "cases": cases,
    "figure": figure,
    "tune": tune,
}
