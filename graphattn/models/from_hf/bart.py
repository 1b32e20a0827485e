"""BART, mBART and Whisper of ``transformers``, whose blocks have the same names."""

from typing import Any

import torch

from ...errors import OptionError
from ..bart import BART
from ..whisper import Whisper
from .text import activation, fill, one_table, refuse, renamed, set_dropouts

NAMES = {
    "model.shared.": "embedding.",
    "model.encoder.embed_positions.": "source_position.",
    "model.decoder.embed_positions.": "target_position.",
    "model.encoder.layernorm_embedding.": "source_norm.",
    "model.decoder.layernorm_embedding.": "target_norm.",
    "model.": "",
    "lm_head.": "head.",
    ".self_attn_layer_norm.": ".attention_norm.",
    ".encoder_attn_layer_norm.": ".cross_norm.",
    ".final_layer_norm.": ".feed_forward_norm.",
    ".layer_norm.": ".norm.",
    ".self_attn.": ".attention.",
    ".encoder_attn.": ".cross_attention.",
    ".fc1.": ".feed_forward.up.",
    ".fc2.": ".feed_forward.down.",
}
SPOKEN = NAMES | {
    "source_position.": "frame_position.",
    "target_position.": "position.",
    "encoder.conv1.": "first.",
    "encoder.conv2.": "second.",
    "decoder.embed_tokens.": "embedding.",
    "proj_out.": "head.",
}


def read(model: Any) -> BART | Whisper:
    """A ``BartForConditionalGeneration``, ``MBartForConditionalGeneration`` or ``WhisperForConditionalGeneration``."""
    config = model.config
    refuse(config, encoder_layerdrop=0.0, decoder_layerdrop=0.0, decoder_attention_heads=config.encoder_attention_heads)
    refuse(config, decoder_ffn_dim=config.encoder_ffn_dim, is_causal=True)
    sizes = (
        config.vocab_size,
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.encoder_ffn_dim,
    )
    options = {"num_decoder_layers": config.decoder_layers, "activation": activation(config.activation_function)}
    with torch.device("meta"):
        made = _whisper(config, sizes, options) if hasattr(config, "num_mel_bins") else _bart(model, sizes, options)
    if isinstance(made, Whisper):
        words, head, state = model.model.decoder.embed_tokens, model.proj_out, renamed(model, SPOKEN)
    else:
        base, head, state = model.model, model.lm_head, renamed(model, NAMES)
        words = one_table(base.shared, base.encoder.embed_tokens, base.decoder.embed_tokens)
        if state.pop("final_logits_bias").any():
            raise OptionError("final_logits_bias must be 0, for there is no place for it")
        for side in ("source", "target"):
            state[f"{side}_position.weight"] = state[f"{side}_position.weight"][
                2:
            ].clone()  # the first two are not read
            del state[f"{'encoder' if side == 'source' else 'decoder'}.embed_tokens.weight"]  # the embedding's
    fill(made, state)
    if head.weight is words.weight:
        made.tie()
    made.embedding.padding_idx = words.padding_idx  # whose row is not trained
    made.dropout.p = config.dropout
    for stack in (made.encoder, made.decoder):
        set_dropouts(stack.layers, config.attention_dropout, config.dropout, config.activation_dropout)
    if isinstance(made, Whisper):
        made.frame_position.requires_grad_(False)
    return made.train(model.training)


def _bart(model: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> BART:
    config = model.config
    return BART(
        *sizes,
        max_len=config.max_position_embeddings,
        embed_scale=config.d_model**0.5 if config.scale_embedding else 1.0,
        norm_first=type(model).__name__.startswith("MBart"),
        **options,
    )


def _whisper(config: Any, sizes: tuple[Any, ...], options: dict[str, Any]) -> Whisper:
    refuse(config, apply_spec_augment=False)
    return Whisper(
        *sizes,
        num_mels=config.num_mel_bins,
        max_frames=config.max_source_positions,
        max_len=config.max_target_positions,
        **options,
    )
