"""Weights of Pointcept's Point Transformer V3, of Sonata's encoder and of LitePT, key by key."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..arguments import shown
from ..errors import LoaderError

_BLOCK = {
    "conv": "cpe.0",
    "linear": "cpe.1",
    "norm": "cpe.2",
    "block.attention_norm": "norm1.0",
    "block.feed_forward_norm": "norm2.0",
    "block.feed_forward.up": "mlp.0.fc1",
}
_SCALED = {"block.attention.out_proj": ("attn.proj", "ls1.0"), "block.feed_forward.down": ("mlp.0.fc2", "ls2.0")}
_DOWN = {"linear": "proj", "norm.norm": "norm.0"}
_UP = {"linear": "proj.0", "norm.norm": "proj.1", "own": "proj_skip.0", "own_norm.norm": "proj_skip.1"}
_UNUSED = ("embedding.mask_token",)  # of pretraining


def read(make: Any, state: Mapping[str, Tensor], head_dim: int, rotary: float | None) -> Any:
    """What ``make``, a :class:`PointTransformerV3`, gives, with these weights."""
    source = _Source(state, head_dim if rotary is not None else None)
    downs, ups = source.stages("enc"), source.stages("dec")
    linear = source.has("embedding.stem.linear.weight")
    batch = source.has("embedding.stem.norm.running_mean")
    stem = "embedding.stem.linear" if linear else "embedding.stem.conv"
    first_tensor = source.get(f"{stem}.weight", False)
    first = first_tensor.shape
    model = make(
        first[-1],
        source.shape("seg_head.weight")[0] if source.has("seg_head.weight") else None,
        [first[0], *(source.shape(f"enc.enc{s}.down.proj.weight")[0] for s in sorted(downs) if s)],
        [downs[s] for s in sorted(downs)],
        [source.shape(f"dec.dec{s}.up.proj.0.weight")[0] for s in sorted(ups)],
        [ups[s] for s in sorted(ups)],
        head_dim=head_dim,
        stem="linear" if linear else "conv",
        norm="batch" if batch else "layer",
        readout="node" if ups else "shape",
        convs=[source.has_block(s, "cpe.0.weight") or not downs[s] for s in sorted(downs)],
        attends=[source.has_block(s, "attn.qkv.weight") or not downs[s] for s in sorted(downs)],
        rotary=rotary,
    )
    made = {}
    for name in model.state_dict():
        made[name] = source.tensor(name)
    source.finish()
    model = model.to(first_tensor.dtype)
    try:
        model.load_state_dict(made)
    except RuntimeError as error:
        raise LoaderError(f"state: {error}") from error
    return model


class _Source:
    """The tensors of a state dict, each read once."""

    def __init__(self, state: Any, turned: int | None) -> None:
        if not isinstance(state, Mapping) or not all(isinstance(x, Tensor) for x in state.values()):
            raise LoaderError(f"state must be a state dict, tensors by name, got {shown(state)}")
        self.turned = turned  # channels of a head whose pairs of channels rotary positions turn
        self.state = {_named(str(name)): x for name, x in state.items()}
        self.left = set(self.state) - set(_UNUSED)

    def has(self, name: str) -> bool:
        return name in self.state

    def has_block(self, stage: int, name: str) -> bool:
        """True if the first block of a stage has this tensor."""
        return self.has(f"enc.enc{stage}.block0.{name}")

    def shape(self, name: str) -> torch.Size:
        return self.get(name, False).shape

    def get(self, name: str, last: bool = True) -> Tensor:
        if name not in self.state:
            raise LoaderError(f"state has no {name!r}, which Point Transformer V3 has; is it another model's?")
        if last:
            self.left.discard(name)
        return self.state[name]

    def stages(self, side: str) -> dict[int, int]:
        """How many blocks each stage has."""
        number = re.compile(rf"{side}\.{side}(\d+)\.(?:block(\d+)|)")
        result: dict[int, int] = {}
        for match in filter(None, map(number.match, self.state)):
            blocks = 0 if match[2] is None else int(match[2]) + 1
            result[int(match[1])] = max(result.get(int(match[1]), 0), blocks)
        if not result and side == "enc":
            raise LoaderError("state has no keys enc.enc0.block0...; is it a Point Transformer V3's?")
        return result

    def finish(self) -> None:
        """Refuse tensors that nothing read."""
        if self.left:
            raise LoaderError(f"state has tensors that the model has no place for: {', '.join(sorted(self.left)[:6])}")

    def tensor(self, name: str) -> Tensor:
        """What our parameter of this name is made of."""
        part, leaf = name.rsplit(".", 1)
        if part == "head":
            return self.get(f"seg_head.{leaf}")
        if part in ("stem", "stem_norm.norm"):
            kind = "norm" if part != "stem" else "conv" if self.has("embedding.stem.conv.weight") else "linear"
            return _kernel(self.get(f"embedding.stem.{kind}.{leaf}"))
        side, number, inner = _place(part)
        if side in ("stages", "back"):
            stage, block, inner = number, *inner.split(".", 1)
            room = "enc" if side == "stages" else "dec"
            return self._of_block(f"{room}.{room}{stage}.block{block}", inner, leaf)
        theirs = f"enc.enc{number + 1}.down.{_DOWN[inner]}" if side == "downs" else f"dec.dec{number}.up.{_UP[inner]}"
        return self.get(f"{theirs}.{leaf}")

    def _of_block(self, theirs: str, inner: str, leaf: str) -> Tensor:
        if inner == "norm" and self.has(f"{theirs}.norm0.0.{leaf}"):
            return self.get(f"{theirs}.norm0.0.{leaf}")
        if inner in _BLOCK:
            return _kernel(self.get(f"{theirs}.{_BLOCK[inner]}.{leaf}"))
        if inner in _SCALED:
            name, scale = _SCALED[inner]
            x = self.get(f"{theirs}.{name}.{leaf}")
            if not self.has(f"{theirs}.{scale}.gamma"):
                return x
            gamma = self.get(f"{theirs}.{scale}.gamma")  # LayerScale, after the projection
            return x * (gamma[:, None] if leaf == "weight" else gamma)
        which = ("q_proj", "k_proj", "v_proj").index(inner.removeprefix("block.attention."))
        x = self.get(f"{theirs}.attn.qkv.{leaf}").chunk(3)[which]
        return (
            x
            if self.turned is None or which == 2
            else x.unflatten(0, (-1, self.turned))[:, _pairs(self.turned)].flatten(0, 1)
        )


def _place(part: str) -> tuple[str, int, str]:
    """The list of ``levels`` that a parameter is in, its number there, and what follows."""
    _, side, number, inner = part.split(".", 3)
    return side, int(number), inner


def _named(name: str) -> str:
    """A name as Pointcept has it; LitePT calls its convolutions ``conv``."""
    return re.sub(r"(block\d+)\.conv\.", r"\1.cpe.", re.sub(r"^(module\.)?(backbone\.)?", "", name))


def _pairs(head_dim: int) -> Tensor:
    """LitePT's channels in our order: theirs has the halves of each axis's pairs side by side, ours those of all."""
    return torch.arange(head_dim).view(3, 2, -1).transpose(0, 1).flatten()


def _kernel(x: Tensor) -> Tensor:
    """A kernel (out, k, k, k, in) of spconv as ours (k * k * k, out, in); anything else as it is."""
    return x.movedim(0, 3).flatten(0, 2) if x.dim() == 5 else x
