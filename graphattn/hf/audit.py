"""The connectivity of a configuration, compared with that of the model's code."""

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..analysis.masks.audit_mask import BUDGET, Audit, audit_one
from ..errors import GraphAttnError, LoaderError, need_extra
from ..graph import AttentionGraph
from ..graphs import block_local, causal, full, sliding_window
from ..printed import Printed
from .mixing import listed
from .modules import Place
from .patch import patched

_MOST_NUMBERS = 1 << 26  # parameters and buffers of a small model: 256 MiB
_TOKENS = 29  # over three windows, and not a multiple of one
_KINDS = ("full_attention", "sliding_attention", "chunked_attention")

WIDTHS = {
    37: "vocab_size vocab_size_per_layer_input",
    32: (
        "hidden_size d_model n_embd embed_dim dim emb_dim hidden_dim word_embed_proj_dim "
        "embedding_size"
    ),
    2: "num_key_value_heads num_experts_per_tok type_vocab_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads "
    "num_local_experts num_experts n_routed_experts rotary_dim",
    8: "head_dim d_kv hidden_size_per_layer_input",
    24: (
        "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner mlp_dim "
        "moe_intermediate_size"
    ),
    64: "max_position_embeddings n_positions max_source_positions max_target_positions",
}
#: Names of a layer's window in configurations.
WINDOWS = ("local_attention", "sliding_window", "attention_window_size", "attention_chunk_size")
WINDOW = 8  # in place of a larger one; 9 of an odd one
_COUNT = re.compile(r"(^|_)(n_layer|layers|depth|num_labels)$")  # names of counts of modules
_MOST = 1024
_TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


@dataclass(frozen=True, repr=False)
class ConfigAudit(Printed):
    """The result of :func:`audit_config`; true if every layer agrees with the configuration.

    Args:
        model: The class of the model.
        layers: By the name of each module of attention, its masks compared with the graph of the
            configuration.
        notes: The windows of the run, and those that no layer has.
    """

    model: str
    layers: dict[str, Audit]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if all layers agree."""
        return all(self.layers.values())

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {"ok": self.ok, **asdict(self)}

    def in_full(self) -> str:
        alike: dict[str, list[str]] = {}
        for name, report in self.layers.items():
            alike.setdefault(str(report), []).append(name)
        lines = [f"{self.model}: {len(self.layers)} layers, as its code runs"]
        for words, names in alike.items():
            if len(names) > 1:
                more = f" and {len(names) - 1} more"
            else:
                more = ""
            lines.append(f"{names[0]}{more}\n  " + words.replace("\n", "\n  "))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def audit_config(config: Any) -> ConfigAudit:
    """Compare a configuration of transformers with the connectivity of the model's code.

    A model with the layers of the configuration, random weights and small widths is run once, and
    its masks are recorded at attention. ``layer_types`` defines the graph of a layer; without it
    every layer has the window, if any, or all (earlier) tokens. A window counts the token itself;
    for encoders it has half on each side.

    Args:
        config: A configuration of transformers, or a folder or file that holds one
            (``config.json``).

    Raises:
        LoaderError: If there is no configuration, or no model can be made of it.
        OptionError: If its model does not read tokens, or computes attention in its own code.

    Example:
        >>> import transformers
        >>> config = transformers.MistralConfig(num_hidden_layers=2, sliding_window=4096)
        >>> print(audit_config(config))
        MistralModel: 2 layers, as its code runs
        layers.0.self_attn and 1 more
          ok: all 841 entries are those of sliding_window(29, 8, causal=True)
        note: run with sliding_window=8 in place of 4096
    """
    config = _loaded(config)
    text = config.get_text_config()
    _check_layers(text)
    try:
        import transformers

        check_counts(config.to_dict())
        tiny = small(config)
        _refuse_large(tiny)
        model = transformers.AutoModel.from_config(tiny, trust_remote_code=False).eval()
        tokens = {"input_ids": torch.ones(1, _TOKENS, dtype=torch.int64)}
        if getattr(config, "is_encoder_decoder", False):
            tokens["decoder_input_ids"] = tokens["input_ids"]
        with patched(model, "model") as probe, torch.no_grad():
            model(**tokens)
            graphs = {
                place: probe.last[place][0]
                for place in probe.slots
                if place in probe.last and place.role != "cross"
            }
            others = listed(probe.mixers)
    except GraphAttnError:
        raise
    except Exception as error:  # of transformers, about a field, or an input that is no text
        raise LoaderError(
            f"no small model of tokens can be made of this {type(config).__name__}: "
            f"{str(error)[:200]}"
        ) from error
    expected = {
        place: _expected(place, tiny.get_text_config(), probe.slots[place].is_causal)
        for place in graphs
    }
    layers = {
        place.name: audit_one(graph, expected_graph, BUDGET)
        for place, graph in graphs.items()
        if isinstance(graph, AttentionGraph) and (expected_graph := expected[place]) is not None
    }
    notes = _notes(text, tiny.get_text_config())
    if others:
        notes.append(f"{others} mix tokens, too, in their own code: this is of attention alone")
    return ConfigAudit(type(model).__name__, layers, tuple(notes))


def _check_layers(config: Any) -> None:
    """Refuse a configuration without layers, or with a window of no token."""
    windows = () if getattr(config, "use_sliding_window", True) is False else WINDOWS
    for name in ("num_hidden_layers", *windows):
        value = getattr(config, name, None)
        if isinstance(value, int) and value < 1 and (name in WINDOWS or value == 0):
            raise LoaderError(f"{name} must be a whole number >= 1 for an audit, got {value}")


def _refuse_large(tiny: Any) -> None:
    """Refuse a configuration whose small model is large, by a model on meta."""
    from transformers import AutoModel

    try:
        with torch.device("meta"):
            model = AutoModel.from_config(tiny, trust_remote_code=False)
    except RuntimeError:  # the class computes with its parameters
        return
    numbers = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if numbers > _MOST_NUMBERS:
        raise LoaderError(
            f"a small {type(model).__name__} has {numbers:,} parameters (limit {_MOST_NUMBERS:,})"
        )


def _loaded(config: Any) -> Any:
    try:
        from transformers import AutoConfig, PretrainedConfig
    except ImportError:
        raise need_extra("transformers", "hf") from None
    if isinstance(config, PretrainedConfig):
        return config
    try:
        file = config
        if os.path.isdir(config):
            file = os.path.join(config, "config.json")
        with open(file, encoding="utf-8") as stream:
            fields = json.load(stream)
        check_counts(fields if isinstance(fields, dict) else {})
        return AutoConfig.from_pretrained(config, local_files_only=True, trust_remote_code=False)
    except GraphAttnError:
        raise
    except (
        Exception
    ) as error:  # transformers' own checks of configurations raise many kinds of errors
        raise LoaderError(
            f"{config}: expected a configuration of transformers: {str(error)[:800]}"
        ) from error


def _expected(place: Place, config: Any, is_causal: bool) -> AttentionGraph | None:
    """The graph of a layer in a configuration; ``None`` for kinds other than attention."""
    number = re.search(r"\.(\d+)(\.|$)", f".{place.name}")
    kinds = getattr(config, "layer_types", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    else:
        window = next(
            (w for name in WINDOWS[:3] if isinstance(w := getattr(config, name, None), int)), None
        )
    chunked = isinstance(getattr(config, "attention_chunk_size", None), int)
    if window is not None:
        kind = "sliding_attention"
    elif chunked:
        kind = "chunked_attention"
    else:
        kind = "full_attention"
    if kinds and number is not None and int(number[1]) < len(kinds):
        kind = kinds[int(number[1])]
    if kind not in _KINDS:
        return None
    if kind == "chunked_attention":
        return block_local(_TOKENS, config.attention_chunk_size, causal=True)
    if kind == "sliding_attention" and window is not None:
        if is_causal:
            return sliding_window(_TOKENS, window, causal=True)
        return sliding_window(_TOKENS, window | 1, causal=False)
    if is_causal:
        return causal(_TOKENS)
    return full(_TOKENS)


def _notes(config: Any, tiny: Any) -> list[str]:
    notes = []
    kinds = set(getattr(config, "layer_types", None) or ())
    for name in WINDOWS:
        window = getattr(config, name, None)
        ran = getattr(tiny, name, None)
        if not isinstance(window, int):
            continue
        if window != ran:
            notes.append(f"run with {name}={ran} in place of {window}")
        if "chunk" in name:
            kind = "chunked_attention"
        else:
            kind = "sliding_attention"
        if kinds and kind not in kinds:
            notes.append(f"the configuration has {name}={window}, but layer_types has no {kind}")
    return notes


def sizes(config: Any) -> dict[str, int]:
    """The numbers of a configuration that the small one replaces."""
    fields = config.to_dict()
    chosen = {name: size for size, names in WIDTHS.items() for name in names.split()}
    chosen |= {
        name: WINDOW + fields[name] % 2
        for name in WINDOWS
        if _is_whole(fields.get(name)) and fields[name] > WINDOW
    }
    return _TOKEN_IDS | {name: size for name, size in chosen.items() if _is_whole(fields.get(name))}


def check_counts(fields: Any, within: str = "") -> None:
    """Refuse excessive numbers of layers before a configuration or a model is built.

    Raises:
        LoaderError: If a number is out of range; the message names the field.
    """
    for name, value in fields.items():
        if isinstance(value, dict):
            check_counts(value, f"{within}{name}.")
        elif _is_whole(value) and _COUNT.search(name) and not 0 <= value <= _MOST:
            raise LoaderError(
                f"{within}{name} must be a whole number from 0 to {_MOST:,}, got {value}"
            )


def small(config: Any) -> Any:
    """The configuration with small widths and windows, and the same kinds of layers."""
    chosen: dict[str, Any] = dict(sizes(config))
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            chosen[name] = small(getattr(config, name)).to_dict()
    return type(config)(**(config.to_dict() | chosen))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
