"""Every model, small: the module and its inputs, a batch first. A class of ``ga.models`` joins by
its own example.
"""

from functools import partial

import torch
from torch import nn

from graphattn import graphs, models
from graphattn.models.example import EXAMPLES
from graphattn.nn import FeedForward, MixtureOfExperts, TransformerBlock

V, C, H = 11, 8, 2


class Along(nn.Module):
    """A module that reads along given graphs."""

    def __init__(self, module, *given):
        super().__init__()
        self.module, self.given = module, given

    def forward(self, *inputs):
        return self.module(*inputs, *self.given)


class Memory(nn.Module):
    """Patterns that are learned, and retrieved."""

    def __init__(self):
        super().__init__()
        self.patterns = nn.Parameter(torch.randn(5, C))

    def forward(self, x):
        return models.hopfield.retrieve(x, self.patterns, 2.0, steps=2)


def made(example, p):
    """The small model of a class of ``ga.models``, along its graphs if it has any."""
    return Along(example.make(p), *example.graphs()) if example.graphs() else example.make(p)


def experts(p):
    mixture = MixtureOfExperts([FeedForward(C, 6) for _ in range(3)], C, top_k=2)
    return Along(TransformerBlock(C, H, feed_forward=mixture, drop_path=p), graphs.causal(...))


def tokens(length, batch):
    return torch.randint(V, (batch, length))


def source_and_target(batch):
    return tokens(7, batch), tokens(5, batch)


MODELS = {
    **{name: (partial(made, each), each.inputs) for name, each in EXAMPLES.items()},
    "gpt2": (
        lambda p: models.GPT.gpt2(V, C, H, 1, max_len=9, dropout=p),
        lambda b: (tokens(7, b),),
    ),
    "llama": (
        lambda p: models.GPT.llama(V, 16, 4, 1, 12, num_kv_heads=2, dropout=p),
        lambda b: (tokens(7, b),),
    ),
    "encoder_decoder": (
        lambda p: Along(
            models.EncoderDecoder(
                models.Encoder(1, C, H, dropout=p), models.Decoder(1, C, H, dropout=p)
            ),
            graphs.full(...),
            graphs.causal(...),
        ),
        lambda b: (torch.randn(b, 7, C), torch.randn(b, 5, C)),
    ),
    "experts": (experts, lambda b: (torch.randn(b, 7, C),)),
    "retrieve": (lambda p: Memory(), lambda b: (torch.randn(b, 7, C),)),
    "bottleneck": (
        lambda p: models.Seq2Seq(V, V, embed_dim=6, hidden=C, attention=None),
        source_and_target,
    ),
    "luong": (
        lambda p: models.Seq2Seq(V, V, embed_dim=6, hidden=C, attention="general"),
        source_and_target,
    ),
}
RECURRENT = ("bottleneck", "luong", "seq2seq")
TIED = dict.fromkeys(("gpt2", "gpt", "t5"), "head.weight") | {"bert": "head.out.weight"}


def small(name, dropout=0.0, batch=2):
    """The model with fresh weights, in training, and its inputs."""
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    return make(dropout), inputs(batch)


def same(found, wanted, rtol=1e-5):
    """Equal, relative to the largest number."""
    torch.testing.assert_close(
        found, wanted, rtol=0, atol=rtol * float(wanted.detach().abs().max())
    )
