"""Features and parameters at random, the same in every run, for layers beside those of others."""

import torch
from torch import nn


def features(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64).requires_grad_()


def shaken(module):
    """With no parameter at the value it starts from."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.double()
