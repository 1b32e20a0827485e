"""States of training in one file each: tensors by name and JSON, whole or not there, without pickle."""

import json
from typing import Any

from torch import Tensor, nn

from ..errors import LoaderError, need_extra
from ..interop.files._guard import PathLike, read
from ..interop.files._replace import replace_file

_KEY = "graphattn"


def safetensors() -> Any:
    """The library, or the error that names the extra."""
    try:
        import safetensors.torch as library
    except ModuleNotFoundError:
        raise need_extra("safetensors", "train") from None
    return library


def save_state(path: PathLike, tensors: dict[str, Tensor], told: dict[str, Any]) -> None:
    """Write tensors and what JSON holds; what was there before stays until the new file is whole on the disk.

    Raises:
        LoaderError: If it cannot be written: the disk is full.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    content = safetensors().save(plain, {_KEY: json.dumps(told)})
    replace_file(path, lambda file: file.write(content))


def load_state(path: PathLike) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU, and what :func:`save_state` was told.

    Raises:
        LoaderError: If there is no such file, or it is damaged or another one.
    """
    content = bytes(read(path, 1 << 40).data)  # as large as what was saved
    try:
        tensors = safetensors().load(content)
        size = int.from_bytes(content[:8], "little")
        told = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][_KEY])
    except Exception as error:
        got = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise LoaderError(f"{path}: expected a state of training, got: {got}. Try: the file of another run.") from None
    return tensors, told


def fill(model: nn.Module, tensors: dict[str, Tensor], path: PathLike) -> None:
    """Give a model the parameters that a file holds.

    Raises:
        LoaderError: If they are those of another model.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        got = " ".join(str(error).split())[:160]
        raise LoaderError(f"{path}: expected the model of run.json, got: {got}. Try: the file of this run.") from None


def prefixed(**parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """One dict of several; ``part.name`` is the name of each."""
    return {f"{part}.{name}": value for part, tensors in parts.items() for name, value in tensors.items()}


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one part by their own names."""
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
