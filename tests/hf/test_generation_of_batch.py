"""Generation along graphs that are a function of the batch writes what the plain model writes that
gets their masks at each step.
"""

import pytest
import torch
from tiny_models import tiny_model
from transformers import (
    AutoModelForCausalLM,
)

import graphattn as ga

P, NEW, IMAGE = 11, 5, 36
WRITE = {
    "max_new_tokens": NEW,
    "do_sample": False,
    "eos_token_id": None,
    "pad_token_id": 0,
    "suppress_tokens": [IMAGE],
}


def prompts():
    """Three prompts with images, padded on the left, and their mask."""
    ids = torch.randint(3, 30, (3, P), generator=torch.Generator().manual_seed(2))
    ids[0, 2:6] = IMAGE
    ids[1, 7:9] = IMAGE
    ids[2, 4:7] = IMAGE
    mask = torch.ones_like(ids)
    for row, padded in enumerate((0, 4, 2)):
        ids[row, :padded] = 0
        mask[row, :padded] = 0
    return ids, mask


def related(input_ids):
    """Earlier tokens of a token's kind, itself, and all tokens of its image."""
    graphs = []
    for x in input_ids:
        is_image = x == IMAGE
        kind = (x[:, None] % 3 == x % 3).tril()
        graphs.append(ga.from_mask(kind | is_image[:, None] & is_image))
    return graphs


def louder(model):
    """The model with larger weights, so that what a token reads changes what is written."""
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    return model


@pytest.fixture(scope="module")
def llama():
    return louder(tiny_model("llama", auto=AutoModelForCausalLM))


def stock(model, function, *args, **options):
    """What the plain model writes without a cache, called with the masks of the graphs."""

    def with_mask(_, args, given):
        ids, mask = given["input_ids"], given.get("attention_mask")
        dense = torch.stack([graph.mask() for graph in function(ids)])[:, None]
        if mask is not None:
            dense = dense & mask[:, None, None].bool()
        dense = dense | torch.eye(ids.shape[1], dtype=torch.bool)  # padding, which nothing reads
        return args, given | {"attention_mask": dense}

    hook = model.register_forward_pre_hook(with_mask, with_kwargs=True)
    try:
        return model.generate(*args, use_cache=False, **options)
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def written(llama):
    """By way of writing: options, and what the plain model writes."""
    ids, mask = prompts()
    ways = {
        "greedy": {},
        "sampling": {"do_sample": True},
        "beams": {"num_beams": 3},
        "sampled beams": {"num_beams": 2, "do_sample": True, "num_return_sequences": 2},
    }
    result = {}
    for name, options in ways.items():
        torch.manual_seed(3)
        result[name] = (
            options,
            stock(llama, related, ids, attention_mask=mask, **(WRITE | options)),
        )
    return result


@pytest.mark.parametrize("way", ["greedy", "sampling", "beams", "sampled beams"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "none", "chunks"])
def test_every_way_of_writing_follows_the_masks(llama, written, way, cache):
    ids, mask = prompts()
    caches = {
        "dynamic": {},
        "static": {"cache_implementation": "static"},
        "none": {"use_cache": False},
        "chunks": {"prefill_chunk_size": 9},
    }
    options, expected = written[way]
    torch.manual_seed(3)
    with ga.patched(llama, related):
        result = llama.generate(ids, attention_mask=mask, **(WRITE | options | caches[cache]))
    assert torch.equal(result, expected)
