"""A prompt is computed once for all of its completions: a step of GRPO on one row equals that on a
batch.

GRPO (Shao et al. 2024) samples several completions of a prompt and weighs each by its reward beside
the mean of the group. A batch repeats the prompt for each completion; a prefix tree holds it once,
and the first tokens that completions share, too. Here a tiny GPT-2 takes two updates on one group
both ways.
"""

import copy

import torch
import transformers

import graphattn as ga

GROUP, PROMPT, NEW, EOS, CLIP = 8, 48, 20, 2, 0.2

torch.manual_seed(0)
config = transformers.GPT2Config(
    vocab_size=40,
    n_positions=128,
    n_embd=32,
    n_layer=2,
    n_head=4,
    bos_token_id=1,
    eos_token_id=EOS,
    resid_pdrop=0.0,  # a tree draws dropout once for a shared token, a batch once for each row
    embd_pdrop=0.0,
    attn_pdrop=0.0,
)
policy = transformers.GPT2LMHeadModel(config).double()

prompt = torch.randint(3, 40, (PROMPT,))
sampled = policy.generate(
    prompt.expand(GROUP, -1),
    attention_mask=torch.ones(GROUP, PROMPT, dtype=torch.int64),
    max_new_tokens=NEW,
    do_sample=True,
    temperature=3.0,
    pad_token_id=EOS,
)[:, PROMPT:]
ends = (sampled == EOS).int().argmax(1)
ends[(sampled != EOS).all(1)] = NEW - 1
completions = [row[: end + 1] for row, end in zip(sampled, ends.tolist(), strict=True)]
rewards = torch.tensor([(row % 2 == 0).double().mean() for row in completions])  # even tokens
advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)


def grpo_loss(log_probs, old_log_probs, mask):
    """The clipped surrogate, a mean over tokens, of log-probabilities (GROUP, L)."""
    ratio = torch.exp(log_probs - old_log_probs)
    weight = advantages[:, None]
    gain = torch.minimum(ratio * weight, ratio.clamp(1 - CLIP, 1 + CLIP) * weight)
    return -(gain * mask).sum() / mask.sum()


def updated(model, log_probs, mask):
    """The model after two updates on the same completions, and the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    old_log_probs = log_probs(model).detach()
    losses = []
    for _ in range(2):
        loss = grpo_loss(log_probs(model), old_log_probs, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


# a batch: the prompt in every row, completions padded
rows = [torch.cat((prompt, completion)) for completion in completions]
batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=EOS)
lengths = torch.tensor([len(row) for row in rows])
place = torch.arange(batch.shape[1])
of_completion = (place >= PROMPT) & (place < lengths[:, None])


def of_batch(model):
    logits = model(batch, attention_mask=(place < lengths[:, None]).long()).logits[:, :-1]
    found = logits.log_softmax(-1).gather(-1, batch[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(found, (1, 0)).masked_fill(~of_completion, 0)


# a row: the prompt once
tree = ga.graphs.prefix_tree(completions, prompt_ids=prompt)


def of_row(model):
    return tree.log_probs(model(tree.input_ids, position_ids=tree.position_ids).logits)


assert torch.equal(tree.mask, of_completion)
beside, batch_losses = updated(copy.deepcopy(policy), of_batch, of_completion)
with ga.patched(policy, tree.graph):
    policy, row_losses = updated(policy, of_row, tree.mask)

pairs = list(zip(policy.parameters(), beside.parameters(), strict=True))
apart = max(float((ours - theirs).detach().abs().max()) for ours, theirs in pairs)
print(tree)
print(
    f"losses {row_losses[0]:.6f} and {row_losses[1]:.6f}; a batch's parameters are {apart:.0e} off"
)
assert apart < 1e-10
assert abs(row_losses[1] - batch_losses[1]) < 1e-10
assert row_losses[1] < row_losses[0] - 1e-3  # the updates did something
assert tree.parents.numel() < batch.numel() / 3
