"""Every model, small: the module and its inputs, a batch first."""

import torch
from torch import nn

from graphattn import graphs, models
from graphattn.nn import ALiBi, FeedForward, MixtureOfExperts, TransformerBlock

V, C, H = 11, 8, 2
RING = graphs.circulant(7, (1, 2, 5, 6))


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
        return models.retrieve(x, self.patterns, 2.0, steps=2)


class Steps(nn.Module):
    """All that a decision transformer expects."""

    def __init__(self, p):
        super().__init__()
        self.model = models.DecisionTransformer(5, 2, C, H, 1, max_len=9, dropout=p)

    def forward(self, *inputs):
        return torch.cat(self.model(*inputs), -1)


def experts(p):
    mixture = MixtureOfExperts([FeedForward(C, 6) for _ in range(3)], C, top_k=2)
    return Along(TransformerBlock(C, H, feed_forward=mixture, drop_path=p), graphs.causal(...))


def graphormer(p):
    options = {"encoding_dim": 3, "max_distance": 3, "readout": "mean", "dropout": p}
    return Along(models.GraphTransformer(5, C, H, 1, out_dim=3, **options), RING, graphs.full(...))


def tokens(length, batch):
    return torch.randint(V, (batch, length))


def source_and_target(batch):
    return tokens(7, batch), tokens(5, batch)


MODELS = {
    "gpt2": (lambda p: models.gpt2(V, C, H, 1, max_len=9, dropout=p), lambda b: (tokens(7, b),)),
    "llama": (lambda p: models.llama(V, 16, 4, 1, 12, num_kv_heads=2, dropout=p), lambda b: (tokens(7, b),)),
    "alibi": (lambda p: models.GPT(V, C, H, 1, score_bias=ALiBi(H), dropout=p), lambda b: (tokens(7, b),)),
    "bert": (
        lambda p: models.BERT(V, C, H, 1, max_len=9, masked_head=True, pooler=False, dropout=p),
        lambda b: (tokens(7, b),),
    ),
    "t5": (lambda p: models.T5(V, C, H, 1, num_buckets=8, max_distance=6, dropout=p), source_and_target),
    "bart": (lambda p: models.BART(V, C, H, 1, max_len=9, dropout=p), source_and_target),
    "whisper": (
        lambda p: models.Whisper(V, C, H, 1, num_mels=5, max_frames=8, max_len=9, dropout=p),
        lambda b: (torch.randn(b, 5, 16), tokens(7, b)),
    ),
    "steps": (
        Steps,
        lambda b: (*(torch.randn(b, 6, width) for width in (5, 2, 1)), torch.arange(6).expand(b, 6)),
    ),
    "encoder_decoder": (
        lambda p: Along(
            models.EncoderDecoder(models.Encoder(1, C, H, dropout=p), models.Decoder(1, C, H, dropout=p)),
            graphs.full(...),
            graphs.causal(...),
        ),
        lambda b: (torch.randn(b, 7, C), torch.randn(b, 5, C)),
    ),
    "longformer": (
        lambda p: Along(models.Encoder(2, C, H, norm_first=False, dropout=p), models.longformer_graphs((3, 5))),
        lambda b: (torch.randn(b, 9, C),),
    ),
    "global_projections": (
        lambda p: models.Longformer(
            (3,), vocab_size=V, embed_dim=C, num_heads=H, num_layers=1, max_len=9, pooler=False, dropout=p
        ),
        lambda b: (tokens(7, b),),
    ),
    "vit": (
        lambda p: models.ViT((8, 12), (4, 4), 1, C, H, num_classes=5, dropout=p),
        lambda b: (torch.randn(b, 3, 8, 12),),
    ),
    "vivit": (
        lambda p: Along(
            models.ViViT((4, 4, 6), (2, 2, 2), 2, C, H, num_classes=5, dropout=p), models.divided_space_time((2, 2, 3))
        ),
        lambda b: (torch.randn(b, 3, 4, 4, 6),),
    ),
    "timesformer": (
        lambda p: models.TimeSformer((2, 4, 6), (2, 2), 1, C, H, num_classes=5, drop_path=p),
        lambda b: (torch.randn(b, 3, 2, 4, 6),),
    ),
    "swin": (
        lambda p: models.Swin(C, (2, 1), (H, H), window=2, patch=(2, 2), num_classes=5, drop_path=p, dropout=p),
        lambda b: (torch.randn(b, 3, 10, 14),),
    ),
    "perceiver": (
        lambda p: models.Perceiver(4, C, 6, 1, H, num_blocks=2, outputs=(3, C), dropout=p),
        lambda b: (torch.randn(b, 9, 6),),
    ),
    "graphormer": (graphormer, lambda b: (torch.randn(b, 7, 5),)),
    "experts": (experts, lambda b: (torch.randn(b, 7, C),)),
    "hopfield": (lambda p: Memory(), lambda b: (torch.randn(b, 7, C),)),
    "bottleneck": (lambda p: models.Seq2Seq(V, V, embed_dim=6, hidden=C, attention=None), source_and_target),
    "luong": (lambda p: models.Seq2Seq(V, V, embed_dim=6, hidden=C, attention="general"), source_and_target),
    "bahdanau": (lambda p: models.Seq2Seq(V, V, embed_dim=6, hidden=C), source_and_target),
}
RECURRENT = ("bottleneck", "luong", "bahdanau")
TIED = dict.fromkeys(("gpt2", "alibi", "t5", "bart", "whisper"), "head.weight") | {"bert": "head.out.weight"}


def small(name, dropout=0.0, batch=2):
    """The model with fresh weights, in training, and its inputs."""
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    return make(dropout), inputs(batch)


def same(found, wanted, rtol=1e-5):
    """Equal, relative to the largest number."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=rtol * float(wanted.detach().abs().max()))
