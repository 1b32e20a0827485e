"""Models of transformers with random weights and tiny sizes, made from their configurations by
name.
"""

import inspect

import torch
from transformers import AutoModel, logging
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

logging.set_verbosity_error()
SIZES = {
    37: "vocab_size vocab_size_per_layer_input",
    32: (
        "hidden_size d_model n_embd embed_dim dim emb_dim hidden_dim word_embed_proj_dim "
        "embedding_size"
    ),
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "num_decoder_layers depth "
    "num_key_value_heads num_experts_per_tok type_vocab_size num_frames",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads patch_size "
    "num_local_experts num_experts n_routed_experts rotary_dim",
    8: "head_dim d_kv hidden_size_per_layer_input",
    24: (
        "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner mlp_dim "
        "moe_intermediate_size"
    ),
    64: "max_position_embeddings n_positions max_source_positions max_target_positions",
    16: "image_size projection_dim",
    5: "sliding_window",
    6: "attention_chunk_size",
    1: "tubelet_size",
}
TINY = {name: size for size, names in SIZES.items() for name in names.split()}
TINY |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def tiny_config(kind):
    """A configuration of the class in which all sizes that it has are small."""
    default = kind()
    known = default.to_dict()
    chosen = {name: size for name, size in TINY.items() if name in known}
    chosen = {
        name: size
        for name, size in chosen.items()
        if known[name] is not None or name.endswith("token_id")
    }
    chosen = {name: size for name, size in chosen.items() if isinstance(known[name], int | None)}
    if isinstance(known.get("image_size"), list | tuple):
        chosen["image_size"] = [16, 16]
    if isinstance(known.get("num_heads"), list | tuple):  # of Swin's stages
        chosen |= {"num_heads": [2, 4], "depths": [2, 2], "window_size": 2, "embed_dim": 8}
    if known.get("layer_types"):
        # two kinds
        chosen["layer_types"] = [*dict.fromkeys(known["layer_types"]), *known["layer_types"][:1]][
            :2
        ]
    for name in getattr(kind, "sub_configs", {}):
        if getattr(default, name, None) is not None:
            chosen[name] = tiny_config(type(getattr(default, name))).to_dict()
    return kind(**chosen)


def tiny_model(name, dtype=torch.float64, auto=AutoModel, **options):
    """A model by the name of its type, with parameters that are not at their start."""
    config = tiny_config(CONFIG_MAPPING[name])
    for option, value in options.items():
        setattr(config, option, value)
    torch.manual_seed(0)
    model = auto.from_config(config).to(dtype).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return model


def inputs_of(model, dtype=torch.float64):
    """Two examples for a model: tokens, an image, or a video."""
    draw = torch.Generator().manual_seed(1)
    if model.main_input_name == "pixel_values":
        frames = [model.config.num_frames] if hasattr(model.config, "num_frames") else []
        return {"pixel_values": torch.randn(2, *frames, 3, 16, 16, generator=draw, dtype=dtype)}
    given = {"input_ids": torch.randint(3, 30, (2, 11), generator=draw)}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        given["decoder_input_ids"] = torch.randint(3, 30, (2, 7), generator=draw)
    return given


def padding(given, side):
    """The mask of tokens of which the first example lacks three on a side."""
    mask = torch.ones_like(given["input_ids"])
    mask[0, slice(0, 3) if side == "left" else slice(-3, None)] = 0
    return mask
