"""Small models of ``transformers`` with random weights, in float64, by name; and their calls beside
ours.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
import torch
from text_models import in_float64, same, same_gradients, shaken

transformers = pytest.importorskip("transformers", minversion="5.15")
decoders = pytest.importorskip("transformers.models.perceiver.modeling_perceiver")

V, T = 13, 3  # tokens of the vocabulary; frames
SIZES = {
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
}
TEXT = {**SIZES, "vocab_size": V, "type_vocab_size": 3, "max_position_embeddings": 21}
LLAMA = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "rms_norm_eps": 1e-4,
}
LLAMA |= {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "pad_token_id": None}
T5 = {
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 3,
    "num_decoder_layers": 3,
}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6, "vocab_size": 17}
SWIN = {
    "embed_dim": 6,
    "depths": (2, 2),
    "num_heads": (2, 3),
    "window_size": 3,
    "patch_size": 2,
    "mlp_ratio": 2.0,
}
PERCEIVER = {
    "num_latents": 5,
    "d_latents": 12,
    "d_model": 10,
    "num_self_attends_per_block": 2,
    "num_labels": 7,
}
PERCEIVER |= {
    "num_self_attention_heads": 3,
    "num_cross_attention_heads": 2,
    "attention_probs_dropout_prob": 0.0,
}
CONFIGS = {
    "Bert": {**TEXT, "max_position_embeddings": 11, "attn_implementation": "sdpa"},
    "GPT2": {
        "vocab_size": V,
        "n_positions": 11,
        "n_embd": 12,
        "n_layer": 2,
        "n_head": 3,
        "bos_token_id": 0,
    }
    | {"eos_token_id": 0, "attn_implementation": "sdpa"},
    "Llama": {**TEXT, **LLAMA, "attn_implementation": "eager"},
    "Longformer": {
        **TEXT,
        "num_hidden_layers": 3,
        "attention_window": [4, 4, 8],
        "hidden_act": "relu",
    }
    | {"layer_norm_eps": 1e-4},
    "LongT5": {**T5, "local_radius": 2},
    "Perceiver": PERCEIVER,
    "Swinv2": {**SWIN, "image_size": (24, 36), "num_labels": 5},
    "T5": {**T5, "attn_implementation": "eager"},
    "Timesformer": {**SIZES, "image_size": 10, "patch_size": 5, "num_frames": T},
    "ViT": {
        **SIZES,
        "image_size": (8, 15),
        "patch_size": (4, 5),
        "num_labels": 5,
        "attn_implementation": "sdpa",
    },
}
HEADS = {
    "Bert": "ForMaskedLM",
    "GPT2": "LMHeadModel",
    "Llama": "ForCausalLM",
    "Longformer": "ForMaskedLM",
}
HEADS |= dict.fromkeys(("LongT5", "T5"), "ForConditionalGeneration") | {
    "Timesformer": "ForVideoClassification"
}
HEADS |= dict.fromkeys(("Swinv2", "ViT"), "ForImageClassification")


def theirs(
    family: str,
    kind: str | None = None,
    training: bool = False,
    *,
    decoder: Any = None,
    **options: Any,
) -> Any:
    """A model of a family, with its usual head, or of another ``kind``: "Model"."""
    torch.manual_seed(0)
    with nullcontext() if family == "Swinv2" else in_float64():
        config = getattr(transformers, f"{family}Config")(
            **deepcopy({**CONFIGS[family], **options})
        )
        made = {} if decoder is None else {"decoder": decoder(config)}
        model = getattr(
            transformers, family + (HEADS.get(family, "Model") if kind is None else kind)
        )(config, **made)
    model = shaken(model, training)
    for module in model.modules():  # Swin V2 computes its coordinates in float32
        if hasattr(module, "relative_coords_table"):
            side, trained = (
                module.window_size[0],
                module.pretrained_window_size[0] or module.window_size[0],
            )
            away = [8 * offset / max(1, trained - 1) for offset in range(1 - side, side)]
            log = [math.copysign(math.log2(1 + abs(each)), each) / 3 for each in away]
            table = torch.tensor(
                [[[y, x] for x in log] for y in log], dtype=torch.float64
            ).unsqueeze(0)
            torch.testing.assert_close(
                module.relative_coords_table.double(), table, rtol=1e-6, atol=1e-6
            )
            module.relative_coords_table = table
            module.logit_scale.data[-1] = 5.0  # above log(100)
    return model


def classes(config: Any) -> Any:
    """A decoder of a Perceiver."""
    positions = {"num_channels": 12, "index_dims": 1}
    return decoders.PerceiverClassificationDecoder(
        config,
        num_channels=12,
        trainable_position_encoding_kwargs=positions,
        use_query_residual=True,
    )


def four_outputs(config: Any) -> Any:
    """A decoder of a Perceiver with sizes of its own."""
    positions, own = {"num_channels": 8, "index_dims": 4}, {"num_heads": 2, "qk_channels": 6}
    return decoders.PerceiverBasicDecoder(
        config,
        3,
        num_channels=8,
        output_index_dims=4,
        trainable_position_encoding_kwargs=positions,
        **own,
    )


def integers(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1))


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_place(x: torch.Tensor) -> torch.Tensor:
    """Nodes of a video frame by frame to place by place, behind the class token."""
    return torch.cat((x[:, :1], x[:, 1:].unflatten(1, (T, -1)).transpose(1, 2).flatten(1, 2)), 1)


class Case(NamedTuple):
    """Two calls that give the same tensors, of theirs and of ours."""

    theirs: Callable[[Any], tuple[torch.Tensor, ...]]
    ours: Callable[[Any], tuple[torch.Tensor, ...]]
    options: tuple[dict[str, Any], ...] = ({},)


WORDS, TYPES = integers(V, 2, 7), integers(3, 2, 7)
# read, not counted
PADDED = integers(V, 2, 15, low=2).index_put((torch.tensor(0), torch.tensor(4)), torch.tensor(1))
GLOBAL = torch.zeros(2, 15).long().index_fill(1, torch.tensor([2, 4, 9]), 1)
SOURCE, TARGET, IMAGES, VIDEOS = (
    integers(17, 2, 11),
    integers(17, 2, 7),
    real(2, 3, 8, 15),
    real(2, 3, T, 10, 10),
)
OLD = {"rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 60}
LLAMA3 = {**OLD, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
GLU = {"feed_forward_proj": "gated-gelu"}


def _features(name: str, x: torch.Tensor, **given: Any) -> Case:
    """A base model with its pooler."""

    def ours(model: Any) -> tuple[torch.Tensor, ...]:
        features = model(x, **({"types": given["token_type_ids"]} if given else {}))
        return features, model.pooled(features)

    return Case(lambda m: tuple(m(x, **given)[:2]), ours)


def _written(model: Any) -> tuple[torch.Tensor, ...]:
    found = model(input_ids=SOURCE, decoder_input_ids=TARGET)
    return found.logits, found.encoder_last_hidden_state


def _stages(size: tuple[int, int], *options: dict[str, Any]) -> Case:
    x = real(2, 3, *size)
    made = tuple({"image_size": size, **given} for given in options)
    return Case(
        lambda m: (m(x).last_hidden_state, *m(x, output_hidden_states=True).hidden_states),
        lambda m: (m(x), *m.hidden(x)),
        made,
    )


CASES: dict[str, Case] = {
    "Bert": Case(
        lambda m: (m(WORDS, token_type_ids=TYPES).logits, m(WORDS).logits),
        lambda m: (m(WORDS, types=TYPES), m(WORDS)),
        (
            {},
            {"hidden_act": "relu", "layer_norm_eps": 1e-2},
            {"hidden_act": "gelu_new", "tie_word_embeddings": False},
        ),
    ),
    "Bert Model": _features("Bert", WORDS, token_type_ids=TYPES),
    "GPT2": Case(
        lambda m: (m(WORDS).logits,),
        lambda m: (m(WORDS),),
        (
            {},
            {"n_inner": 17, "activation_function": "relu", "layer_norm_epsilon": 1e-2},
            {"tie_word_embeddings": False, "scale_attn_by_inverse_layer_idx": True},
            {"scale_attn_weights": False},
        ),
    ),
    "Llama": Case(
        lambda m: (
            m(WORDS).logits,
            m(WORDS, position_ids=torch.tensor([[3, 1, 4, 1, 5, 9, 2]])).logits,
        ),
        lambda m: (m(WORDS), m(WORDS, positions=torch.tensor([3, 1, 4, 1, 5, 9, 2]))),
        (
            {},
            {"head_dim": 10, "attention_bias": True, "tie_word_embeddings": True},
            {"mlp_bias": True, "num_key_value_heads": 1, "pad_token_id": 3},
            {"rope_parameters": LLAMA3, "hidden_act": "gelu"},
            # ignored
            {
                "rope_parameters": LINEAR,
                "sliding_window": 3,
                "layer_types": ["sliding_attention"] * 2,
            },
        ),
    ),
    "T5": Case(
        _written,
        lambda m: (m(SOURCE, TARGET), m.encode(SOURCE)),
        (
            {},
            {**GLU, "tie_word_embeddings": False},
            {"layer_norm_epsilon": 0.1, "num_decoder_layers": None},
        ),
    ),
    "ViT": Case(
        lambda m: (m(IMAGES).logits, m(IMAGES, output_hidden_states=True).hidden_states[0]),
        lambda m: (m(IMAGES), m.nodes(IMAGES)),
        (
            {},
            {"qkv_bias": False, "hidden_act": "relu"},
            {"layer_norm_eps": 0.1, "hidden_act": "gelu_new"},
        ),
    ),
    "ViT Model": _features("ViT", IMAGES),
    "Swinv2": Case(lambda m: (m(real(2, 3, 24, 36)).logits,), lambda m: (m(real(2, 3, 24, 36)),)),
    "Swinv2 Model": _stages((24, 36), {"pretrained_window_sizes": (2, 4)}),
    "Swinv2 Model padded": _stages((20, 28), {"qkv_bias": False, "hidden_act": "relu"}),
    # a stage is smaller than the window
    "Swinv2 Model small": _stages((12, 12), {"window_size": 4}),
    "Swinv2 Model deep": _stages(
        (24, 24), {"layer_norm_eps": 0.1, "depths": (1, 3, 2), "num_heads": (1, 2, 2)}
    ),
}
"""Models that the package reads."""
EXAMPLES: dict[str, Case] = {
    "Longformer": Case(
        lambda m: (m(PADDED, global_attention_mask=GLOBAL).logits, m(PADDED).logits),
        lambda m: (m(PADDED, global_tokens=(9, 2, 4)), m(PADDED)),
    ),
    "Longformer Model": Case(
        lambda m: tuple(m(PADDED, global_attention_mask=GLOBAL)[:2]),
        lambda m: (
            m(PADDED, global_tokens=(9, 2, 4)),
            m.pooled(m(PADDED, global_tokens=(9, 2, 4))),
        ),
    ),
    "LongT5": Case(
        _written,
        lambda m: (m(SOURCE, TARGET), m.encode(SOURCE)),
        (
            {**GLU, "num_decoder_layers": None},
            {"encoder_attention_type": "transient-global", "global_block_size": 4},
        ),
    ),
    "Timesformer": Case(
        lambda m: (
            m(VIDEOS.transpose(1, 2)).logits,
            *m(VIDEOS.transpose(1, 2), output_hidden_states=True)[1][:2],
        ),
        lambda m: (
            m(VIDEOS),
            by_place(m.nodes(VIDEOS)),
            by_place(m.layers[0](m.nodes(VIDEOS), T, m.graphs)),
        ),
        ({}, {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 0.1}),
    ),
    "Timesformer Model": Case(
        lambda m: (m(VIDEOS.transpose(1, 2)).last_hidden_state,), lambda m: (by_place(m(VIDEOS)),)
    ),
    "Perceiver": Case(
        lambda m: (m(real(2, 11, 10)).last_hidden_state,),
        lambda m: (m(real(2, 11, 10)),),
        (
            {},
            {
                "num_blocks": 3,
                "use_query_residual": False,
                "cross_attention_shape_for_attention": "q",
            },
            {"qk_channels": 18, "v_channels": 12, "self_attention_widening_factor": 2}
            | {"cross_attention_widening_factor": 3},
        ),
    ),
    "Perceiver Model with outputs": Case(
        lambda m: (m(real(2, 11, 10)).logits,),
        lambda m: (m(real(2, 11, 10)),),
        ({"decoder": classes}, {"decoder": four_outputs}),
    ),
}
"""Models that ``examples/models`` reads."""


def equal_outputs_and_gradients(
    name: str, case: Case, number: int, read: Callable[[Any], Any]
) -> None:
    """A model that is read gives their outputs and the gradients of all parameters."""
    family, *kind = name.split(" ")
    model = theirs(family, *kind[:1], **case.options[number])
    mine = read(model)
    with in_float64():
        wanted = case.theirs(model)
    found = case.ours(mine)
    assert len(found) == len(wanted)
    for output, expected in zip(found, wanted, strict=True):
        same(output, expected, 1e-11)
    last = -1 if kind and len(found) == 2 else 0  # of a base model with its pooler, what that makes
    same_gradients(mine, model, found[last], wanted[last], 1e-9)
