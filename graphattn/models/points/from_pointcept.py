"""Weights of Pointcept's Point Transformer V3, of Sonata's encoder and of LitePT, key by key."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import LoaderError
from ..from_transformers.weights import rename

#: Replacements in their names, for :func:`rename`.
_NAMES = {
    "^(module.)?(backbone.)?": "",
    "^embedding.stem.(conv|linear).": "stem.",
    "^embedding.stem.norm.": "stem_norm.norm.",
    "^seg_head.": "head.",
    "^enc.enc(\\d+).block(\\d+).": r"levels.stages.\1.\2.",
    "^dec.dec(\\d+).block(\\d+).": r"levels.back.\1.\2.",
    "^enc.enc(\\d+).down.proj.": r"levels.downs.\1.linear.",
    "^enc.enc(\\d+).down.norm.0.": r"levels.downs.\1.norm.norm.",
    "^dec.dec(\\d+).up.proj.0.": r"levels.ups.\1.linear.",
    "^dec.dec(\\d+).up.proj.1.": r"levels.ups.\1.norm.norm.",
    "^dec.dec(\\d+).up.proj_skip.0.": r"levels.ups.\1.own.",
    "^dec.dec(\\d+).up.proj_skip.1.": r"levels.ups.\1.own_norm.norm.",
    ".(cpe|conv).0.": ".conv.",  # LitePT's name is conv
    ".(cpe|conv).1.": ".linear.",
    ".(cpe|conv).2.": ".norm.",
    ".norm0.0.": ".norm.",
    ".norm1.0.": ".block.attention_norm.",
    ".norm2.0.": ".block.feed_forward_norm.",
    ".attn.(qkv|proj).": r".block.attention.\1.",
    ".attention.proj.": ".attention.out_proj.",
    ".mlp.0.fc1.": ".block.feed_forward.up.",
    ".mlp.0.fc2.": ".block.feed_forward.down.",
    ".ls1.0.gamma": ".block.attention.out_proj.gamma",
    ".ls2.0.gamma": ".block.feed_forward.down.gamma",
}


def read(make: Any, state: Mapping[str, Tensor], head_dim: int, rotary: float | None) -> Any:
    """A ``make``, :class:`PointTransformerV3`, with these weights."""
    # for pretraining only
    old_names = {
        _new_name(name): name for name in state if not name.endswith("embedding.mask_token")
    }
    tensors: dict[str, Tensor] = {}
    for name, old in old_names.items():
        gamma = old_names.get(f"{name.rpartition('.')[0]}.gamma")  # LayerScale, after a projection
        if gamma != old:
            # a kernel (out, k, k, k, in) of spconv as ours (k * k * k, out, in)
            x = state[old]
            if x.dim() == 5:
                x = x.movedim(0, 3).flatten(0, 2)
            if gamma is not None:
                x = (x.t() * state[gamma]).t()
            rotated_dim = None
            if rotary:
                rotated_dim = head_dim
            tensors |= _parts(name, x, rotated_dim)
    model = make(**_sizes(tensors), head_dim=head_dim, rotary=rotary).to(
        _get(tensors, "stem.weight").dtype
    )
    expected = model.state_dict()
    left = [old_names.get(name, name) for name in tensors if name not in expected]
    if left:
        raise LoaderError(f"state has tensors that the model lacks: {', '.join(sorted(left)[:6])}")
    try:
        model.load_state_dict({name: _get(tensors, name) for name in expected})
    except RuntimeError as error:
        raise LoaderError(f"state: {error}") from error
    return model


def _new_name(name: str) -> str:
    return re.sub(r"downs\.(\d+)", lambda match: f"downs.{int(match[1]) - 1}", rename(name, _NAMES))


def _get(tensors: dict[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise LoaderError(
            f"state must have {name!r}, as Point Transformer V3 does; pass the state of such a "
            "model"
        )
    return tensors[name]


def _parts(name: str, x: Tensor, rotated: int | None) -> dict[str, Tensor]:
    """A tensor by name, or those of queries, keys and values that it joins.

    Where heads are so wide that they are rotated, LitePT has the halves of each axis's pairs of
    channels side by side, and ours those of all axes.
    """
    if ".qkv." not in name:
        return {name: x}
    query, key, value = x.chunk(3)
    if rotated is not None:
        order = torch.arange(rotated).view(3, 2, -1).transpose(0, 1).flatten()
        query, key = (
            part.unflatten(0, (-1, rotated))[:, order].flatten(0, 1) for part in (query, key)
        )
    return {
        name.replace("qkv", f"{letter}_proj"): part
        for letter, part in zip("qkv", (query, key, value), strict=True)
    }


def _sizes(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The model's arguments."""

    def depths(side: str, count: int) -> list[int]:
        numbers = [re.match(rf"levels\.{side}\.(\d+)\.(\d+)\.", name) for name in tensors]
        blocks = [(int(match[1]), int(match[2]) + 1) for match in numbers if match]
        return [
            max((depth for stage, depth in blocks if stage == number), default=0)
            for number in range(count)
        ]

    downs = sum(
        name.startswith("levels.downs.") and name.endswith("linear.weight") for name in tensors
    )
    if any(name.startswith("levels.ups.") for name in tensors):
        ups = downs
    else:
        ups = 0
    down = depths("stages", downs + 1)
    if not any(down):
        raise LoaderError(
            "state must have keys enc.enc0.block0...; pass that of a Point Transformer V3"
        )
    first = _get(tensors, "stem.weight").shape
    has = [
        [f"levels.stages.{s}.0.{name}" in tensors or not depth for s, depth in enumerate(down)]
        for name in _PARTS
    ]
    return {
        "features": first[-1],
        "out_dim": tensors["head.weight"].shape[0] if "head.weight" in tensors else None,
        "widths": [
            first[-2],
            *(_get(tensors, f"levels.downs.{i}.linear.weight").shape[0] for i in range(downs)),
        ],
        "depths": down,
        "back_widths": [
            _get(tensors, f"levels.ups.{i}.linear.weight").shape[0] for i in range(ups)
        ],
        "back_depths": depths("back", ups),
        "stem": "conv" if len(first) == 3 else "linear",
        "norm": "batch" if "stem_norm.norm.running_mean" in tensors else "layer",
        "readout": "node" if ups else "shape",
        "convs": has[0],
        "attends": has[1],
    }


_PARTS = ("conv.weight", "block.attention.q_proj.weight")
