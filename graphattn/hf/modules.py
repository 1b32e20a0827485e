"""The attention of a Hugging Face model: which of its modules attend, in which order, and what they read."""

import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from torch import nn

from ..errors import OptionError

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # in the source of what calls it
_CROSS = re.compile(r"cross|encoder_attn|enc_?dec|xattn", re.IGNORECASE)
_NUMBER = re.compile(r"\.\d+(?=\.|$)")
#: What can be done about models whose attention is their own code, by the name of their module in transformers.
_INSTEAD = {
    "longformer": "graphattn.models.Longformer.from_hf(model) runs it, on its graph or any other",
    "led": "a patched BART reads along any window",
    "big_bird": "patch a BERT with ga.graphs.bigbird(...)",
    "bigbird_pegasus": "patch a PEGASUS with ga.graphs.bigbird(...)",
    "swinv2": "graphattn.models.Swin.from_hf(model) runs it",
    "perceiver": "graphattn.models.Perceiver.from_hf(model) runs it",
    "timesformer": "patch a ViViT, whose tokens may read along ga.graphs.divided_space_time(...)",
    "dinat": "patch a DINOv2 with ga.graphs.grid_window(...)",
    "bloom": "patch a Falcon or an MPT-like GPT, or add graphattn.nn.ALiBi to a graphattn.models.GPT",
    "mpt": "add graphattn.nn.ALiBi to a graphattn.models.GPT",
    "gpt_neo": "patch a GPT-NeoX or a GPT-2, with windows in the layers that have them",
}


@dataclass(frozen=True)
class Place:
    """Where a module of attention stands.

    Args:
        name: Its dotted name in the model.
        stack: That name without the numbers: modules of one stack are its layers.
        layer: Its number in the stack.
        role: "encoder", "decoder" or "cross" in a model that has cross-attention, else "".
    """

    name: str
    stack: str
    layer: int
    role: str

    def answers(self, key: str) -> bool:
        """Whether a caller's key means this module: its role, its stack, or a part of its name."""
        return key in (self.role, self.stack) or f".{key}." in f".{self.name}."


def attention_modules(model: nn.Module) -> dict[Place, nn.Module]:
    """The modules of attention in the order in which the model holds them.

    Raises:
        OptionError: If the model, or a model in it, has attention that is not behind transformers' interface.
    """
    models = [part for part in model.modules() if hasattr(part, "_can_set_attn_implementation")]
    if not models:
        raise OptionError(f"model must be a model of transformers, got {type(model).__name__}")
    found = {name: part for name, part in model.named_modules() if _attends(cast(Any, type(part)))}
    for part in models:
        if not cast(Any, part)._can_set_attn_implementation():
            raise OptionError(_refusal(part))
    if not found:
        raise OptionError(_refusal(models[0]))
    crosses = any(_CROSS.search(name) for name in found)
    counts: dict[str, int] = {}
    places = {}
    for name, part in found.items():
        stack = _NUMBER.sub("", f".{name}").strip(".")
        role = _role(name) if crosses else ""
        places[Place(name, stack, counts.get(stack, 0), role)] = part
        counts[stack] = counts.get(stack, 0) + 1
    return places


def stacks(places: Any) -> dict[str, int]:
    """The stacks and their numbers of layers."""
    result: dict[str, int] = {}
    for place in places:
        result[place.stack] = result.get(place.stack, 0) + 1
    return result


def _role(name: str) -> str:
    if _CROSS.search(name):
        return "cross"
    return "encoder" if "encoder" in name and "decoder" not in name else "decoder"


@lru_cache(maxsize=4096)
def _attends(kind: Any) -> bool:
    """Whether the class calls transformers' attention interface itself."""
    if hasattr(kind, "_can_set_attn_implementation"):
        return False
    for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        try:
            if _INTERFACE in inspect.getsource(base):
                return True
        except (OSError, TypeError):
            continue
    return False


def _refusal(part: nn.Module) -> str:
    family = type(part).__module__.rpartition(".")[2].removeprefix("modeling_")
    instead = _INSTEAD.get(family, "take a model of the same kind that is behind it, or one of graphattn.models")
    return f"{type(part).__name__} computes its attention in its own code, not behind AttentionInterface: {instead}"
