"""Why Longformer, LongT5, TimeSformer and Perceiver are models of examples/models: their attention is code of
their own, and no graph on a model behind the interface equals all of it.
"""

import pytest
import torch
from text_models import in_float64
from tiny_models import tiny_config, tiny_model
from transformers import RobertaModel, T5Model
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import graphattn as ga
from graphattn import OptionError, graphs

B, N, T = 2, 16, 7  # Longformer has no NaN in its gradients where windows divide N
LOCAL = {"local_radius": 2, "encoder_attention_type": "local"}
SUMMARIES = {
    "local_radius": 2,
    "encoder_attention_type": "transient-global",
    "global_block_size": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["longformer", "timesformer", "perceiver"])
def test_no_patch_reaches_attention_of_the_models_own_code(name):
    model = tiny_model(name, num_latents=3, d_latents=32, num_self_attends_per_block=1)
    with pytest.raises(
        OptionError, match=r"in its own code.*from_transformers of .*examples/models"
    ):
        ga.patch(model, "model")


@pytest.mark.parametrize(
    ("options", "kind"),
    [(LOCAL, "LongT5LocalAttention"), (SUMMARIES, "LongT5TransientGlobalAttention")],
)
def test_a_patch_reaches_the_decoder_of_longt5_alone(options, kind):
    model = tiny_model("longt5", **options)
    with pytest.raises(OptionError, match=r"'encoder'.*matches no attention"):
        ga.patch(model, {"encoder": graphs.full(...)})
    assert f"{kind} as it was, in its own code" in repr(ga.patch(model, "model"))


def tokens(length, seed):
    return torch.randint(3, 30, (B, length), generator=torch.Generator().manual_seed(seed))


def result(model, read, own):
    """An output of a model, and its gradients by their names in the other model."""
    model.zero_grad()
    with in_float64():
        output = model(**read).last_hidden_state
    output.square().sum().backward()
    grads = {own(name): x.grad for name, x in model.named_parameters() if x.grad is not None}
    return output.detach(), grads


def plain_model(kind, name, model, own):
    """A model behind the interface with the weights of one that is not."""
    config = tiny_config(CONFIG_MAPPING[name])
    for option in set(config.to_dict()) & set(model.config.to_dict()) - {"model_type"}:
        setattr(config, option, getattr(model.config, option))
    made = kind(config).double().eval()
    weights = {own(name): x for name, x in model.state_dict().items()}
    missing = made.load_state_dict(weights, strict=False).missing_keys
    assert not [name for name in missing if not name.startswith("pooler")]
    return made


def same(one, other, within):
    return torch.allclose(one, other, rtol=1000 * within, atol=within)


def assert_same(found, wanted):
    assert same(found[0], wanted[0], 1e-12)
    for name, grad in wanted[1].items():
        assert same(found[1][name], grad, 1e-10), name
    assert sum(float(grad.abs().sum()) for grad in wanted[1].values()) > 1


def test_windows_of_longformer_are_a_graph_and_its_global_projections_are_not():
    model = tiny_model("longformer", attention_window=[4, 8])
    plain = plain_model(RobertaModel, "roberta", model, str)
    windows = [graphs.sliding_window(..., w, causal=False) for w in (5, 9)]
    read = {"input_ids": tokens(N, 1)}
    with ga.patched(plain, windows):
        assert_same(result(plain, read, str), result(model, read, str))
    is_global = torch.zeros(B, N, dtype=torch.int64).index_fill(1, torch.tensor([0, 5]), 1)
    with_global = read | {"global_attention_mask": is_global}
    edges = [window | graphs.global_tokens(..., (0, 5)) for window in windows]
    with ga.patched(plain, edges):
        patched, _ = result(plain, read, str)
    assert not same(patched, result(model, with_global, str)[0], 1e-3)
    weights = model.state_dict()
    # the same edges, once global tokens have the projections of the others
    model.load_state_dict({name: weights[name.replace("_global", "")] for name in weights})
    assert same(patched, result(model, with_global, str)[0], 1e-12)


def test_windows_of_longt5_are_a_graph_and_its_summaries_are_not():
    def own(name):
        for kind in ("Local", "TransientGlobal"):
            name = name.replace(f"{kind}SelfAttention", "SelfAttention")
        return name

    read = {"input_ids": tokens(N, 1), "decoder_input_ids": tokens(T, 2)}
    window = {"encoder": graphs.sliding_window(..., 5, causal=False)}
    model = tiny_model("longt5", **LOCAL)
    plain = plain_model(T5Model, "t5", model, own)
    with ga.patched(plain, window):
        assert_same(result(plain, read, str), result(model, read, own))
    model = tiny_model("longt5", **SUMMARIES)
    plain = plain_model(T5Model, "t5", model, own)
    wanted, _ = result(model, read, own)
    for graph in (window, {"encoder": graphs.full(...)}):
        with ga.patched(plain, graph):
            assert not same(result(plain, read, str)[0], wanted, 1e-3)
