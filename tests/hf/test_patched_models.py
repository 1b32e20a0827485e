"""Patched models of many architectures are their own, to the last digits; and a removed edge is
seen.
"""

import pytest
import torch
from tiny_models import inputs_of, padding, tiny_model

import graphattn as ga

TEXT, IMAGES, PAIRS = map(
    str.split,
    (
        """llama mistral mixtral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 olmo olmo2 gpt2 gpt_neox opt
        cohere cohere2 starcoder2 stablelm granite glm glm4 helium smollm3 gpt_bigcode biogpt llama4_text gpt_oss
        exaone4 ernie4_5 bert roberta electra distilbert albert camembert modernbert xlm-roberta data2vec-text""",
        "vit deit dinov2 dinov3_vit beit ijepa vivit videomae siglip_vision_model "
        "clip_vision_model yolos swin",
        "t5 mt5 bart mbart marian pegasus blenderbot m2m_100 umt5 longt5",
    ),
)
FLOAT32 = {"mixtral", "gpt_oss", "gemma2"}  # whose experts or own softmax are no float64


def result(model, given, kept):
    """Output of the tokens that are there, and the gradients of all parameters."""
    output = model(**given).last_hidden_state
    if kept is not None:
        output = output[kept]
    model.zero_grad()
    (
        output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    ).sum().backward()
    return output.detach(), [x.grad.clone() for x in model.parameters() if x.grad is not None]


def own_graphs(model, given):
    """The graphs that the masks of a model mean, by stack."""
    with ga.patched(model, "model") as own, torch.no_grad():
        model(**given)
    graphs = {}
    for place in own.slots:
        if place in own.last:
            graphs.setdefault(place.stack, []).append(own.last[place][0])
    return graphs


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT + IMAGES + PAIRS)
def test_same_as_its_own(name):
    dtype = torch.float32 if name in FLOAT32 else torch.float64
    model = tiny_model(name, dtype)
    given = inputs_of(model, dtype)
    graphs, kept = own_graphs(model, given), None
    if name in TEXT:
        given["attention_mask"] = padding(given, "left" if name in TEXT[::2] else "right")
        kept = given["attention_mask"].bool()
    output, gradients = result(model, given, kept)
    close = 2e-5 if name in FLOAT32 else 1e-12
    with ga.patched(model, graphs):
        patched_output, patched_gradients = result(model, given, kept)
    assert (patched_output - output).abs().max() <= close
    assert len(patched_gradients) == len(gradients)
    assert sum(float(x.abs().sum()) for x in gradients) > 0
    for ours, theirs in zip(patched_gradients, gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1000 * close, atol=1000 * close)
    stack, (first, *others) = next(iter(graphs.items()))
    heart = first.num_targets // 2
    one = ga.from_edge_index([[heart], [heart]], first.num_sources, first.num_targets)
    with ga.patched(model, graphs | {stack: [first - one, *others]}), torch.no_grad():
        output_without = model(**given).last_hidden_state
    output_without = output_without if kept is None else output_without[kept]
    assert (output_without - output).abs().max() > 100 * close
