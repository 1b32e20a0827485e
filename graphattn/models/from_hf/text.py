"""What the readers of text models share: a table of names, and a strict loading of what it renames."""

from typing import Any

from torch import Tensor, nn

from ...arguments import one_of
from ...errors import OptionError

State = dict[str, Tensor]
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # their sqrt(2 / pi) has ten digits
    "silu": "silu",
    "swish": "silu",
}


def renamed(model: nn.Module, table: dict[str, str]) -> State:
    """Copies of a model's parameters, with the table's replacements made in every name, in order."""
    state = {}
    for name, tensor in model.state_dict().items():
        for theirs, ours in table.items():
            name = name.replace(theirs, ours)
        state[name] = tensor.clone()
    return state


def fill(made: nn.Module, state: State) -> None:
    """Put the parameters into a model built on meta: all of them are needed but biases, which are dropped if missing.

    Raises:
        OptionError: If a parameter is missing or left over.
    """
    for name in set(made.state_dict()) - set(state):
        owner, _, leaf = name.rpartition(".")
        if leaf == "bias":
            made.get_submodule(owner).register_parameter("bias", None)
    try:
        made.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise OptionError(f"the model's parameters are not those of its class: {error}") from None


def activation(name: str) -> str:
    """Our name of an activation."""
    return ACTIVATIONS[one_of(name, "the activation", ACTIVATIONS)]


def refuse(config: Any, **plain: Any) -> None:
    """Refuse a configuration in which an option that ours lack has not its plain value."""
    for name, value in plain.items():
        if (getattr(config, name, value) or None) != (value or None):  # None, False and 0 all say no
            raise OptionError(f"{name} = {getattr(config, name)!r} cannot be read; only {value!r} can")


def one_table(*tables: Any) -> nn.Embedding:
    """The embedding that a model has under several names, or a refusal of several embeddings."""
    first: nn.Embedding = tables[0]
    if any(table.weight is not first.weight for table in tables):
        raise OptionError("encoder and decoder must have one table of tokens, as tie_word_embeddings=True makes it")
    return first


def set_dropouts(blocks: nn.ModuleList, weights: float, branch: float) -> None:
    """Their probabilities: of attention weights and of what a branch adds; none inside the feed-forwards."""
    for block in blocks:
        parts: Any = block
        parts.attention.dropout, parts.branch[0].p = weights, branch
        for part in parts.feed_forward.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
