"""Tiny models of thirteen families, with images, speech or two towers where a family has them."""

import copy

import torch
import transformers

transformers.logging.set_verbosity_error()
V = 41  # size of the vocabulary
PAD, BOS, EOS, IMAGE, START = 0, 1, 2, 3, 4
SPECIAL = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "vocab_size": V}
DECODER = SPECIAL | {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 8,
    "patch_size": 4,
}
LOCAL_AND_FULL = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
PAIR = SPECIAL | {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": None,
}
CONFIGS = {
    "llama": ("LlamaConfig", DECODER),
    "mistral": ("MistralConfig", DECODER | {"sliding_window": 5}),
    "qwen3": ("Qwen3Config", DECODER | {"head_dim": 6}),
    "gpt_oss": (
        "GptOssConfig",
        DECODER
        | LOCAL_AND_FULL
        | {"head_dim": 4, "num_local_experts": 3, "num_experts_per_tok": 2},
    ),
    "gpt2": (
        "GPT2Config",
        SPECIAL | {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64},
    ),
    "gemma3": (
        "Gemma3Config",
        {
            "text_config": DECODER | LOCAL_AND_FULL | {"head_dim": 6},
            "vision_config": VISION | {"vision_use_head": False},
            "mm_tokens_per_image": 4,
            "image_token_index": IMAGE,
            "boi_token_index": START,
            "eoi_token_index": 5,
        },
    ),
    "qwen2_vl": (
        "Qwen2VLConfig",
        {
            "text_config": DECODER
            | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 0]}},
            "vision_config": {
                "depth": 2,
                "embed_dim": 16,
                "hidden_size": 16,
                "num_heads": 4,
                "mlp_ratio": 2,
                "patch_size": 4,
                "spatial_merge_size": 1,
                "temporal_patch_size": 2,
            },
            "image_token_id": IMAGE,
            "video_token_id": 6,
            "vision_start_token_id": START,
            "vision_end_token_id": 5,
        },
    ),
    "t5": (
        "T5Config",
        SPECIAL
        | {
            "d_model": 16,
            "d_kv": 4,
            "d_ff": 24,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": PAD,
        },
    ),
    "bart": ("BartConfig", PAIR | {"max_position_embeddings": 64}),
    "whisper": (
        "WhisperConfig",
        PAIR
        | {
            "num_mel_bins": 5,
            "max_source_positions": 11,
            "max_target_positions": 64,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
    ),
    "modernbert": (
        "ModernBertConfig",
        SPECIAL
        | {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "local_attention": 4,
            "cls_token_id": BOS,
            "sep_token_id": EOS,
        },
    ),
    "vit": ("ViTConfig", VISION),
    "clip": (
        "CLIPConfig",
        {
            "text_config": DECODER | {"projection_dim": 8},
            "vision_config": VISION | {"projection_dim": 8},
            "projection_dim": 8,
        },
    ),
}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gemma3": "Gemma3ForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
    "modernbert": "ModernBertForMaskedLM",
    "vit": "ViTForImageClassification",
    "clip": "CLIPModel",
}
FAMILIES = tuple(CLASSES)
DECODERS = ("llama", "mistral", "qwen3", "gpt_oss", "gpt2", "gemma3", "qwen2_vl")
PAIRS = ("t5", "bart", "whisper")
WRITERS = DECODERS + PAIRS
READERS = tuple(name for name in FAMILIES if name not in ("vit", "whisper"))
"""Families of which the inputs are tokens, which may be padded."""


def family_model(family, attention="eager", **options):
    """A model of a family with random weights and its usual head, without dropout."""
    name, values = CONFIGS[family]
    config = getattr(transformers, name)(**copy.deepcopy(values))
    for option, value in options.items():
        setattr(config, option, value)
    torch.manual_seed(0)
    kind = getattr(transformers, CLASSES[family])
    if not kind._supports_sdpa:
        attention = "eager"
    model = kind._from_config(config, attn_implementation=attention).to(dtype_of(family)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    for part in model.modules():
        for key, value in vars(part).items():
            if isinstance(value, float) and ("drop" in key or key == "p"):
                setattr(part, key, 0.0)
    return model


def dtype_of(family):
    """float64, but float32 for experts, which are products of matrices in a kernel of that."""
    if family == "gpt_oss":
        return torch.float32
    return torch.float64


def family_inputs(family, rows=2, length=13):
    """Inputs of a family, without padding: token ids, images, or features of speech."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(7, V, (rows, length), generator=draw)
    pixels = torch.randn(rows, 3, 8, 8, generator=draw, dtype=torch.float64)
    if family == "vit":
        return {"pixel_values": pixels}
    if family == "whisper":
        speech = torch.randn(rows, 5, 22, generator=draw, dtype=torch.float64)
        return {"input_features": speech, "decoder_input_ids": ids[:, :7]}
    if family in PAIRS:
        return {"input_ids": ids, "decoder_input_ids": ids[:, :7]}
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if family == "clip":
        given["pixel_values"] = pixels
        given["input_ids"][:, -1] = EOS
    if family in ("gemma3", "qwen2_vl"):
        images = slice(4, 8)
        ids[:, 3] = START
        ids[:, images] = IMAGE
        kinds = torch.zeros_like(ids)
        kinds[:, images] = 1
        if family == "gemma3":
            given |= {"pixel_values": pixels, "token_type_ids": kinds}
        else:
            patches = torch.randn(4 * rows, 3 * 2 * 16, generator=draw, dtype=torch.float64)
            grid = torch.tensor([[1, 2, 2]] * rows)
            given |= {"pixel_values": patches, "image_grid_thw": grid, "mm_token_type_ids": kinds}
    return given


def text_inputs(family, rows=2, length=9):
    """Inputs of a family that writes, for ``generate``: no image, no tokens of the decoder."""
    given = family_inputs(family, rows, length)
    if family == "whisper":
        return {"input_features": given["input_features"]}
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(7, V, (rows, length), generator=draw)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
