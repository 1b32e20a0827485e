"""States of training in one file each: tensors and JSON, written atomically, without pickle."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import LoaderError, need_extra
from ...io.reading import PathLike, read
from ...io.schema import written
from ...io.writing import replace_file

_KEY = "graphattn"


def safetensors() -> Any:
    """The library, or the error that names the extra."""
    try:
        import safetensors.torch as library
    except ModuleNotFoundError:
        raise need_extra("safetensors", "train") from None
    return library


def save_state(path: PathLike, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors and JSON; an earlier file is replaced once the new one is complete on the disk.

    Raises:
        LoaderError: If it cannot be written: the disk is full.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    content = safetensors().save(
        plain, {_KEY: written({"digest": _digest(plain, metadata), "told": metadata})}
    )
    replace_file(path, lambda file: file.write(content))


def load_state(path: PathLike) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU, and the metadata that :func:`save_state` was given.

    Raises:
        LoaderError: If there is no such file, or it is damaged or another one.
    """
    content = bytes(read(path, 1 << 40).data)  # as large as what was saved
    try:
        tensors = safetensors().load(content)
        size = int.from_bytes(content[:8], "little")
        entry = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][_KEY])
        metadata = entry.get("told")
        if metadata is None:
            raise ValueError("one of another version of graphattn")
        if entry["digest"] != _digest(tensors, metadata):
            raise ValueError("tensors that have changed since they were saved")
    except Exception as error:
        if str(error):
            got = str(error).splitlines()[0][:80]
        else:
            got = type(error).__name__
        raise LoaderError(
            f"{path}: expected a state of training, got: {got}. Try: the file of another run."
        ) from None
    return tensors, metadata


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A state dict of safetensors or torch, or the one inside a checkpoint; no code is run."""
    if not path.is_file():
        raise LoaderError(
            f"{path}: expected a state dict or the folder of a trained run, got no such file."
        )
    fix = "what model.state_dict() gives, saved by torch or safetensors"
    try:
        if path.suffix == ".safetensors":
            return dict(safetensors().load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        words = str(error).partition("\n")[0][:80]
        if " " in words:
            got = words
        else:
            got = "a file that torch does not read"
        raise LoaderError(
            f"{path}: expected a state dict of tensors, got: {got}. Try: {fix}."
        ) from None
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(name), dict):
            state = state[name]
    if isinstance(state, dict):
        tensors = {name: x for name, x in state.items() if isinstance(x, Tensor)}
    else:
        tensors = {}
    if not tensors:
        if isinstance(state, dict):
            got = f"a dict of {', '.join(map(str, state))[:80]}"
        else:
            got = f"a {type(state).__name__}"
        raise LoaderError(f"{path}: expected a state dict of tensors, got: {got}. Try: {fix}.")
    return {
        name.removeprefix("module.").removeprefix("_orig_mod."): value
        for name, value in tensors.items()
    }


def _digest(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> str:
    return hashlib.blake2b(
        safetensors().save(tensors) + written(metadata).encode(), digest_size=8
    ).hexdigest()


def fill(model: nn.Module, tensors: dict[str, Tensor], path: PathLike) -> None:
    """Give a model the parameters that a file holds.

    Raises:
        LoaderError: If they are those of another model.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        got = " ".join(str(error).split())[:160]
        raise LoaderError(
            f"{path}: expected the model of run.json, got: {got}. Try: the file of this run."
        ) from None


def prefixed(**parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """One dict of several; ``part.name`` is the name of each."""
    return {
        f"{part}.{name}": value
        for part, tensors in parts.items()
        for name, value in tensors.items()
    }


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one part by their own names."""
    return {
        key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")
    }
