"""Launches of a training step, and waits for the device, on the device that is not there.

``NO_DEVICE=FOLDER python tests/gpu/launches.py MODEL ...`` prints a line of JSON for each model: of
a step on a batch whose plans were made before, the operations on the device that are no views, and
the calls that a host would wait in. An operator of this package counts once for each of its calls.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "training" / "running")]
import no_device  # noqa: E402
import test_feeding  # noqa: E402
import torch  # noqa: E402

from graphattn.backends import device  # noqa: E402
from graphattn.training.running import feeding  # noqa: E402

#: Operations whose result has a size that the host must learn, or is a number of the host.
WAITS = {
    "aten::_local_scalar_dense",
    "aten::_unique2",
    "aten::bincount",
    "aten::equal",
    "aten::nonzero",
    "aten::repeat_interleave.Tensor",
    "aten::unique_consecutive",
    "aten::unique_dim",
}

launches: Counter[str] = Counter()
waits: Counter[str] = Counter()
_run = no_device.run
_tolist = no_device.There.tolist


def counted(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """The operation; a launch, or a call that waits."""
    name = operator.name()
    leaves = no_device.tree_leaves((args, kwargs))
    if any(isinstance(x, no_device.There) for x in leaves):
        if _waits(name, args, kwargs, leaves):
            waits[name] += 1
        if not operator.is_view and name != "aten::detach":
            launches[name] += 1
    return _run(operator, *args, **kwargs)


def _waits(name: str, args: Any, kwargs: Any, leaves: list[Any]) -> bool:
    if name in WAITS:
        return True
    if name == "aten::_to_copy":
        return str(kwargs.get("device")) == "cpu"
    if name == "aten::copy_":
        return not isinstance(args[0], no_device.There)
    if name not in no_device.INDEXING:
        return False
    masks = [x for x in leaves[1:] if isinstance(x, no_device.There)]
    return any(x.dtype == torch.bool for x in masks[:1])


def tolist(x: no_device.There) -> Any:
    """As of a tensor on a device."""
    waits["tolist"] += 1
    return _tolist(x)


def step(name: str) -> dict[str, int]:
    """Launches and waits of the last of several steps of a model, from the batch to the optimizer."""
    model, batches = test_feeding.fed(name, 0, device="cuda:0")
    model = model.to("cuda:0")
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(2):
        for x, levels, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x, levels), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            counts = {"launches": launches.total(), "waits": waits.total()}
            optimizer.step()
            launches.clear()
            waits.clear()
    return {"model": name, **counts}


def main() -> None:
    """A line for each model."""
    no_device.run = counted
    no_device.There.tolist = tolist  # type: ignore[method-assign]
    torch.Tensor.record_stream = lambda x, stream: None  # type: ignore[method-assign]
    torch.set_num_threads(1)
    device._triton_refuses = lambda device: ()  # the kernels of the CPU stand for those of CUDA
    feeding._memory = lambda size: torch.empty(size, dtype=torch.uint8)
    for name in sys.argv[1:]:
        print(json.dumps(step(name)), flush=True)


if __name__ == "__main__":
    main()
