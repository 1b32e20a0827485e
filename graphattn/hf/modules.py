"""The attention modules of a Hugging Face model, in order, with their stacks and roles."""

import inspect
import re
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from ..errors import OptionError
from ..graph.modes import lru_cache

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # in the source of its callers
_CROSS = re.compile(r"cross|encoder_attn|enc_?dec|xattn", re.IGNORECASE)
ROLES = ("encoder", "decoder", "cross")
_NUMBER = re.compile(r"\.\d+(?=\.|$)")
#: Advice for models with attention in their own code, by the name of their module in transformers.
_READ = "ga.models.from_transformers(model) converts it with its weights"
_EXAMPLE = "from_transformers of graphattn's examples/models converts it with its weights"
_ALIBI = "add ga.nn.ALiBi to a ga.models.GPT"
_INSTEAD = {
    "longformer": _EXAMPLE,
    "longt5": _EXAMPLE,
    "swinv2": _READ,
    "perceiver": _EXAMPLE,
    "timesformer": _EXAMPLE,
    "big_bird": "patch a BERT with a window, global_tokens and random_neighbours, its graph",
    "dinat": "patch a ViT or DINOv2 with ga.graphs.grid_neighbourhood(..., causal=False)",
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "gpt_neo": "patch a GPT-2 or GPT-NeoX, with windows in the layers that have them",
    "falcon": "patch a Llama or GPT-NeoX of the same size",
}


@dataclass(frozen=True)
class Place:
    """The place of a module of attention.

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
        """True if a caller's key matches this module: its role, stack, or a part of its name."""
        if self.role and key in ROLES:
            return key == self.role
        return key in (self.role, self.stack) or f".{key}." in f".{self.name}."


def attention_modules(model: nn.Module) -> dict[Place, nn.Module]:
    """The modules of attention in the order of the model.

    Raises:
        OptionError: If the model, or a model in it, has attention that is not behind transformers'
            interface.
    """
    models = [part for part in model.modules() if hasattr(part, "_can_set_attn_implementation")]
    if not models:
        raise OptionError(f"model must be a model of transformers, got {type(model).__name__}")
    modules = {
        name: part for name, part in model.named_modules() if _attends(cast(Any, type(part)))
    }
    for part in models:
        if not cast(Any, part)._can_set_attn_implementation():
            raise OptionError(_refusal(part))
    if not modules:
        raise OptionError(_refusal(models[0]))
    crosses = any(_CROSS.search(name) for name in modules)
    counts: dict[str, int] = {}
    places = {}
    for name, part in modules.items():
        stack = _NUMBER.sub("", f".{name}").strip(".")
        if crosses:
            if _CROSS.search(name):
                role = "cross"
            elif "encoder" in name and "decoder" not in name:
                role = "encoder"
            else:
                role = "decoder"
        else:
            role = ""
        places[Place(name, stack, counts.get(stack, 0), role)] = part
        counts[stack] = counts.get(stack, 0) + 1
    return places


def stacks(places: Any) -> dict[str, int]:
    """The stacks and their numbers of layers."""
    result: dict[str, int] = {}
    for place in places:
        result[place.stack] = result.get(place.stack, 0) + 1
    return result


def own_code(model: nn.Module) -> list[str]:
    """The attention classes of a model that compute their own softmax and cannot be patched."""
    kinds: dict[Any, None] = dict.fromkeys(type(part) for part in model.modules())
    return [
        kind.__name__
        for kind in kinds
        if "Attention" in kind.__name__ and not _attends(kind) and is_written(kind, "softmax(")
    ]


def mixers(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that may mix tokens without attention, by name.

    Found by their form: a convolution along tokens within a layer, and what stands in the place of
    attention where other layers of the same stack and class have it.
    """
    found: dict[str, nn.Module] = {}
    for name, layers in model.named_modules():
        if not isinstance(layers, nn.ModuleList):
            continue
        has_attention = [
            any(_attends(cast(Any, type(part))) for part in layer.modules()) for layer in layers
        ]
        if not any(has_attention):
            continue
        attending = [x for x, attends in zip(layers, has_attention, strict=True) if attends]
        classes = set(map(type, attending))
        known = {type(child) for layer in attending for child in layer.children()}
        for number, (layer, attends) in enumerate(zip(layers, has_attention, strict=True)):
            path = f"{name}.{number}"
            inside = {x: part for x, part in layer.named_modules(prefix=path) if _convolves(part)}
            if not attends and not inside and type(layer) in classes:
                inside = {
                    f"{path}.{x}": part
                    for x, part in layer.named_children()
                    if type(part) not in known
                }
            found |= inside
    return found


def _convolves(part: nn.Module) -> bool:
    return any(
        isinstance(child, nn.Conv1d) and child.kernel_size != (1,) for child in part.children()
    )


def _attends(kind: Any) -> bool:
    """True if the class calls transformers' attention interface itself."""
    return not hasattr(kind, "_can_set_attn_implementation") and is_written(kind, _INTERFACE)


@lru_cache(4096)
def is_written(kind: Any, words: str) -> bool:
    """True if the source of a class, or of a parent class, contains a text."""
    for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        try:
            if words in inspect.getsource(base):
                return True
        except (OSError, TypeError):
            continue
    return False


def _refusal(part: nn.Module) -> str:
    family = type(part).__module__.rpartition(".")[2].removeprefix("modeling_")
    instead = _INSTEAD.get(family, "use a similar model behind it, or one of graphattn.models")
    return (
        f"{type(part).__name__} computes its attention in its own code, not behind "
        f"AttentionInterface: {instead}"
    )
