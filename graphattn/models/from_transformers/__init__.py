"""Weights of models of ``transformers``, read from the given model without importing it."""

from importlib import import_module
from typing import Any

from ...errors import OptionError
from .as_built import refuse_changes

FAMILIES: dict[str, str] = {
    "BertForMaskedLM": "bert",
    "BertModel": "bert",
    "GPT2LMHeadModel": "gpt2",
    "LlamaForCausalLM": "llama",
    "Swinv2ForImageClassification": "swin",
    "Swinv2Model": "swin",
    "T5ForConditionalGeneration": "t5",
    "ViTForImageClassification": "vit",
    "ViTModel": "vit",
}
"""Class in ``transformers`` -> the file here whose ``read(model)`` converts it."""


def from_transformers(model: Any) -> Any:
    """The model of this library with the weights and outputs of one of ``transformers``.

    For models to modify, and for those whose attention :func:`graphattn.patch` does not reach.

    Args:
        model: A model of ``transformers``, such as a ``ViTForImageClassification``;
            :data:`FAMILIES` names the classes. Its parameters are copied; its architecture is read
            from its configuration, whose ``attn_implementation`` must be one of transformers' own.
            Replaced methods of its classes are not noticed.

    Returns:
        The model of :mod:`graphattn.models` for its class, in the same dtype, on the same device,
        in the same mode; frozen if all of it is.
        One without a task (``ViTModel``, ``BertModel``) returns its last hidden state; the output
        of their pooler is ``model.pooled(features)``.

    Raises:
        OptionError: If its class, or an option of its configuration, is not supported, its
            attention function is not one of transformers, a module was changed since it was built
            (another activation, scale or attention, a missing layer) or has a hook or a custom
            ``forward``, or its parameters are quantised or of several dtypes or devices.
    """
    name = type(model).__name__
    if name not in FAMILIES:
        names = ", ".join(sorted(FAMILIES))
        raise OptionError(
            f"from_transformers reads {names}; got {name}, which ga.patch may put on a graph in place"
        )
    refuse_changes(model)
    new_model = import_module(f".{FAMILIES[name]}", __name__).read(model)
    if any(p.requires_grad for p in model.parameters()):
        return new_model
    return new_model.requires_grad_(False)
