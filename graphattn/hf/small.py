"""Configurations with a model's layers and small widths, so that its code runs in milliseconds."""

import re
from typing import Any

from ..errors import LoaderError

WIDTHS = {
    37: "vocab_size vocab_size_per_layer_input",
    32: "hidden_size d_model n_embd embed_dim dim emb_dim hidden_dim word_embed_proj_dim embedding_size",
    2: "num_key_value_heads num_experts_per_tok type_vocab_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "num_local_experts num_experts n_routed_experts rotary_dim",
    8: "head_dim d_kv hidden_size_per_layer_input",
    24: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner mlp_dim moe_intermediate_size",
    64: "max_position_embeddings n_positions max_source_positions max_target_positions",
}
#: Names of a layer's window in configurations.
WINDOWS = ("local_attention", "sliding_window", "attention_window_size", "attention_chunk_size")
WINDOW = 8  # in place of a larger one; 9 of an odd one
_COUNT = re.compile(r"(^|_)(n_layer|layers|depth|num_labels)$")  # names of counts of modules
_MOST = 1024
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def sizes(config: Any) -> dict[str, int]:
    """The numbers of a configuration that the small one replaces."""
    known = config.to_dict()
    chosen = {name: size for size, names in WIDTHS.items() for name in names.split()}
    chosen |= {
        name: WINDOW + known[name] % 2 for name in WINDOWS if _is_whole(known.get(name)) and known[name] > WINDOW
    }
    return _TOKENS | {name: size for name, size in chosen.items() if _is_whole(known.get(name))}


def check_counts(fields: Any, within: str = "") -> None:
    """Refuse excessive numbers of layers before a configuration or a model is built.

    Raises:
        LoaderError: If a number is out of range; the message names the field.
    """
    for name, value in fields.items():
        if isinstance(value, dict):
            check_counts(value, f"{within}{name}.")
        elif _is_whole(value) and _COUNT.search(name) and not 0 <= value <= _MOST:
            raise LoaderError(f"{within}{name} must be a whole number from 0 to {_MOST:,}, got {value}")


def small(config: Any) -> Any:
    """The configuration with small widths and windows; everything else, such as kinds of layers, stays."""
    chosen: dict[str, Any] = dict(sizes(config))
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            chosen[name] = small(getattr(config, name)).to_dict()
    return type(config)(**(config.to_dict() | chosen))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
