"""Availability of devices, so that a missing one is refused before anything runs."""

import torch

from ..errors import OptionError


def check_device(device: str, otherwise: str = "use cpu, or a torch with CUDA on a machine with a GPU") -> str:
    """``device`` as torch spells it; ``otherwise`` is the advice if there is no such device.

    Raises:
        OptionError: If it is neither a CPU nor an available CUDA device.
    """
    try:
        where = torch.device(device)
    except RuntimeError:
        where = torch.device("meta")
    if where.type not in ("cpu", "cuda"):
        raise OptionError(f"device must be cpu, cuda, cuda:1 or the like, got {device!r}")
    if where.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (where.index or 0) >= count:
            raise OptionError(
                f"device is {device!r}, but torch {torch.__version__} finds {count or 'no'} CUDA devices; {otherwise}"
            )
    return str(where)


def ran_out_of_memory(error: Exception) -> bool:
    """True if a device, or this machine, ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "t allocate memory" in str(error)
