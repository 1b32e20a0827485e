"""Images and text, proteins, sound, time series: each model is one attention on graphs of its own.

The models are transformers' own, with random weights; only their call of
attention is replaced, by :func:`graphattn.attention` on the graph that the list names for that
layer. BART, Whisper, VideoMAE and the Decision Transformer are patched in tests/hf.
"""

import pytest
import torch
from text_models import in_float64

import graphattn as ga
from graphattn.graphs import causal, cross, full, sliding_window

tf = pytest.importorskip("transformers", minversion="5.15")
pytestmark = pytest.mark.filterwarnings("ignore")

WIDTHS = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
STACKS = {
    f"{part}_{name}": value
    for part in ("encoder", "decoder")
    for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 24))
} | {"d_model": 16}
IMAGES = {"image_size": 8, "patch_size": 4}
NO_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id"))
IDS, WRITTEN = (torch.arange(6, 6 + n) + torch.arange(2)[:, None] for n in (7, 5))


def real(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# model, configuration, inputs, and the graph of each attention in the order in which they run
MODELS = {
    "images and text, CLIP: an encoder of patches beside a causal one of words": (
        lambda: tf.CLIPModel(
            tf.CLIPConfig(
                text_config={
                    **WIDTHS,
                    **NO_TOKENS,
                    "vocab_size": 30,
                    "max_position_embeddings": 9,
                    "eos_token_id": 9,
                },
                vision_config={**WIDTHS, **IMAGES},
                projection_dim=8,
            )
        ),
        {"input_ids": IDS, "pixel_values": real(2, 3, 8, 8)},
        [full(5), causal(7)],
    ),
    "proteins, ESM": (
        lambda: tf.EsmModel(
            tf.EsmConfig(
                **WIDTHS,
                vocab_size=33,
                pad_token_id=1,
                mask_token_id=32,
                position_embedding_type="rotary",
            )
        ),
        {"input_ids": IDS},
        [full(7)],
    ),
    "sound, wav2vec 2.0": (
        lambda: tf.Wav2Vec2Model(
            tf.Wav2Vec2Config(
                **WIDTHS,
                **{
                    "conv_dim": [8],
                    "conv_stride": [4],
                    "conv_kernel": [4],
                    "num_feat_extract_layers": 1,
                },
                **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
            )
        ),
        {"input_values": real(2, 40)},
        [full(10)],
    ),
    "time series, TimeSeriesTransformer": (
        lambda: tf.TimeSeriesTransformerModel(
            tf.TimeSeriesTransformerConfig(
                prediction_length=4,
                context_length=6,
                lags_sequence=[1, 2],
                num_time_features=1,
                **STACKS,
            )
        ),
        {
            **{
                "past_values": real(2, 8),
                "past_time_features": real(2, 8, 1),
                "past_observed_mask": torch.ones(2, 8),
            },
            **{"future_values": real(2, 4), "future_time_features": real(2, 4, 1)},
        },
        [full(6), causal(4), cross(4, 6)],
    ),
}


def without_a_source(graph):
    """Source 1 is read by itself alone."""
    return graph & ga.from_rule(
        lambda t, s: (s != 1) | (t == 1), graph.num_targets, graph.num_sources
    )


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_the_attention_of_any_transformer_is_ours_on_its_graphs(name):
    make, given, connectivity = MODELS[name]
    torch.manual_seed(0)
    model = make().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    left = []

    def ours(module, query, key, value, attention_mask, scaling=None, **options):
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # node-first
        return ga.attention(
            query, key, value, left.pop(0), scale=scaling, backend="message_passing"
        ), None

    def run(graphs):
        left[:] = graphs
        with torch.no_grad():
            found = model(**given)
        assert not left  # every graph was used
        return torch.cat(
            [x.flatten() for x in found.values() if torch.is_tensor(x) and x.is_floating_point()]
        )

    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    wanted = run([])
    tf.AttentionInterface.register("graphattn", ours)
    model.set_attn_implementation("graphattn")
    torch.testing.assert_close(run(connectivity), wanted, rtol=1e-11, atol=1e-11)
    for number, graph in enumerate(connectivity):
        others = [without_a_source(graph)]
        # the future is read
        others += [full(graph.num_nodes)] if graph.name.startswith("causal") else []
        for other in others:
            swapped = [*connectivity[:number], other, *connectivity[number + 1 :]]
            assert (run(swapped) - wanted).abs().max() > 1e-6


def test_relative_positions_are_attributes_of_edges_in_beit_and_longt5():
    """T5, Swin, Swin V2 and rotary positions are judged in tests/models, ALiBi in
    test_positions_transformers.py.

    On a grid that is not square, transformers 5.23 resamples BEiT's table with its axes swapped,
    even to its own size (``forward`` reshapes to width, height); there its index is compared and
    not its table.
    """
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias
    from transformers.models.longt5.modeling_longt5 import (
        LongT5LocalAttention,
        _get_local_attention_mask,
    )

    torch.manual_seed(0)
    for height, width in ((2, 3), (3, 3)):
        graph = full(1 + height * width)  # the class token, then patches row by row
        row, column = (graph.target - 1) // width, (graph.target - 1) % width
        down, right = row - (graph.source - 1) // width, column - (graph.source - 1) % width
        last = (2 * height - 1) * (2 * width - 1)
        kind = (down + height - 1) * (2 * width - 1) + right + width - 1
        kind[graph.source == 0] = last + 1
        kind[graph.target == 0] = last
        kind[(graph.target == 0) & (graph.source == 0)] = last + 2
        index = BeitRelativePositionBias.generate_relative_position_index((height, width))
        assert torch.equal(kind, index[graph.target, graph.source])
    theirs = BeitRelativePositionBias(
        tf.BeitConfig(**{**WIDTHS, "image_size": 6, "patch_size": 2})
    ).double()
    mine = ga.nn.EdgeTypeBias(last + 3, 2).double()
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(mine.weight)
    wanted = theirs((3, 3))[0]  # (H, N, N)
    assert torch.equal(mine(graph, kind), wanted[:, graph.target, graph.source].t())
    assert not torch.equal(mine(graph, kind), wanted[:, graph.source, graph.target].t())

    config = tf.LongT5Config(
        d_model=16, d_kv=8, num_heads=2, local_radius=3, relative_attention_num_buckets=8
    )
    with in_float64():
        local, n = LongT5LocalAttention(config, has_relative_attention_bias=True).eval(), 13
        x = torch.randn(1, n, 16)
        wanted = local(
            x, _get_local_attention_mask(torch.ones(1, n).bool(), local.block_len, "cpu")
        )[0]
    layer = ga.nn.GraphAttention(16, 2, bias=False, scale=1.0).double()
    bias = ga.nn.T5Bias(2, 8, 128).double()
    bias.table.load_state_dict(local.relative_attention_bias.state_dict())
    names = zip((layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj), "qkvo", strict=True)
    for projection, name in names:
        projection.load_state_dict(getattr(local, name).state_dict())
    for window, right in ((7, True), (9, False)):  # three on either side, and itself
        graph = sliding_window(n, window, causal=False)
        found = layer(x, graph, score_bias=bias(graph))
        assert torch.allclose(found, wanted, rtol=0, atol=1e-12) == right
