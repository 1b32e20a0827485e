"""A graph for each row of new tokens, over the tokens in a cache: drafts, beams, blocks."""

import pytest
import torch
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

import graphattn as ga

PROMPT, NEW = 7, 5
#: For each row the new token that each new token follows; -1 is the last one of the prompt.
TREES = ([-1, 0, 0, 1, 2], [-1, 0, 1, -1, 3], [-1, -1, 0, 2, 1])
PADDED = (0, 3, 1)  # tokens of padding before each row


def tree_mask(tree):
    """bool (new, new): each new token reads those before it on its branch, and itself."""
    mask = torch.eye(len(tree), dtype=torch.bool)
    for token, parent in enumerate(tree):
        if parent >= 0:
            mask[token] |= mask[parent]
    return mask


def masks(held=PROMPT, trees=TREES):
    """bool (B, new, held + new)."""
    new = torch.stack([tree_mask(tree) for tree in trees])
    return torch.cat((torch.ones(*new.shape[:2], held, dtype=torch.bool), new), 2)


def graphs(held=PROMPT, trees=TREES):
    return ga.PerExample([ga.from_mask(mask) for mask in masks(held, trees)])


def depth(mask):
    return mask.sum(-1) - 1


def inputs():
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 30, (len(TREES), PROMPT + NEW), generator=draw)
    present = torch.ones_like(ids)
    for row, padding in enumerate(PADDED):
        present[row, :padding] = 0
    return ids, present


@pytest.fixture(scope="module")
def llama():
    model = tiny_model("llama", auto=AutoModelForCausalLM)
    model.set_attn_implementation("sdpa")
    return model


def prefilled(model, cache, ids, present):
    positions = (present.cumsum(1) - 1).clamp(min=0)[:, :PROMPT]
    model(
        ids[:, :PROMPT],
        attention_mask=present[:, :PROMPT],
        position_ids=positions,
        past_key_values=cache,
    )
    return positions[:, -1:] + 1


def caches(model):
    return {
        "dynamic": DynamicCache,
        "static": lambda: StaticCache(model.config, max_cache_len=PROMPT + NEW + 4),
    }


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("by_function", [False, True])
def test_each_row_is_as_alone_and_as_under_a_mask(llama, kind, by_function):
    ids, present = inputs()
    trees = graphs()
    with torch.no_grad(), ga.patched(llama, ga.graphs.causal(...)):
        cache = caches(llama)[kind]()
        start = prefilled(llama, cache, ids, present)
    positions = start + depth(masks()[:, :, PROMPT:])
    given = {"position_ids": positions, "attention_mask": present}
    graph = (lambda input_ids: list(trees)) if by_function else trees
    with torch.no_grad(), ga.patched(llama, graph):
        found = llama(ids[:, PROMPT:], past_key_values=cache, **given).logits

    allowed = masks() & present[:, None].bool()
    with torch.no_grad():
        plain = DynamicCache()
        prefilled(llama, plain, ids, present)
        masked = llama(
            ids[:, PROMPT:],
            past_key_values=plain,
            position_ids=positions,
            attention_mask=allowed[:, None],
        ).logits
    assert float((found - masked).abs().max()) < 1e-10

    for row, padding in enumerate(PADDED):
        tree = tree_mask(TREES[row])
        for token in range(NEW):
            branch = tree[token].nonzero().flatten() + PROMPT
            path = torch.cat((torch.arange(padding, PROMPT), branch))
            with torch.no_grad():
                alone = llama(ids[row : row + 1, path]).logits[0, -1]
            assert float((found[row, token] - alone).abs().max()) < 1e-10


def test_drafts_after_a_crop_and_between_masked_tokens(llama):
    """The second draft follows accepted tokens; rejected ones are cut off, or masked in a row."""
    ids, present = inputs()
    second = torch.randint(3, 30, (3, NEW), generator=torch.Generator().manual_seed(4))
    now = {"graphs": graphs()}
    with torch.no_grad():
        cache = DynamicCache()
        with ga.patched(llama, ga.graphs.causal(...)):
            start = prefilled(llama, cache, ids, present)
        ga.patch(llama, lambda input_ids: now["graphs"])
        positions = start + depth(masks()[:, :, PROMPT:])
        llama(
            ids[:, PROMPT:], past_key_values=cache, attention_mask=present, position_ids=positions
        )
        kept = PROMPT + 2
        cache.crop(kept - PROMPT - NEW)  # a negative number: how many tokens go
        present = present[:, :kept].clone()
        present[2, PROMPT] = 0  # the third row rejects the first token, and follows the second
        present = torch.cat((present, torch.ones(3, NEW, dtype=torch.int64)), 1)
        now["graphs"] = graphs(kept)
        begins = present[:, :kept].sum(1, keepdim=True)
        positions = begins + depth(masks()[:, :, PROMPT:])
        found = llama(
            second, past_key_values=cache, attention_mask=present, position_ids=positions
        ).logits
        ga.unpatch(llama)
        for row in range(3):
            earlier = torch.cat((ids[row, :kept], second[row]))
            for token in range(NEW):
                branch = tree_mask(TREES[row])[token].nonzero().flatten() + kept
                path = torch.cat((present[row, :kept].nonzero().flatten(), branch))
                alone = llama(earlier[path][None]).logits[0, -1]
                assert float((found[row, token] - alone).abs().max()) < 1e-10


def test_a_shorter_draft_may_be_padded_anywhere(llama):
    ids, present = inputs()
    present[1, PROMPT + 2] = 0  # a token between the drafts of the second row
    allowed = masks() & present[:, None].bool()
    with torch.no_grad():
        cache = DynamicCache()
        with ga.patched(llama, ga.graphs.causal(...)):
            start = prefilled(llama, cache, ids, present)
        positions = start + depth(masks()[:, :, PROMPT:])
        given = {"position_ids": positions, "past_key_values": cache}
        with ga.patched(llama, graphs()):
            found = llama(ids[:, PROMPT:], attention_mask=present, **given).logits
        cache.crop(-NEW)
        masked = llama(ids[:, PROMPT:], attention_mask=allowed[:, None], **given).logits
    there = present[:, PROMPT:].bool()
    assert float((found - masked)[there].abs().max()) < 1e-10


def test_gradients_over_a_cache(llama):
    ids, present = inputs()
    gradients = []
    allowed = masks() & present[:, None].bool()
    for patched in (True, False):
        cache = DynamicCache()
        llama.zero_grad()
        start = prefilled(llama, cache, ids, present)
        given = {"position_ids": start + depth(masks()[:, :, PROMPT:]), "past_key_values": cache}
        if patched:
            with ga.patched(llama, graphs()):
                output = llama(ids[:, PROMPT:], attention_mask=present, **given).logits
        else:
            output = llama(ids[:, PROMPT:], attention_mask=allowed[:, None], **given).logits
        output.square().sum().backward()
        gradients.append([p.grad.clone() for p in llama.parameters()])
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        assert float(wanted.abs().max()) > 0
