"""Run by :mod:`ranks`: the second of three processes ends or is late; the others say why they
end.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

import graphattn as ga
from graphattn.distributed import fingerprint, shard

RANK, WHAT = dist.get_rank(), sys.argv[1]
GRAPH = ga.graphs.sliding_window(300, 9, causal=True)
begin = time.monotonic()
try:
    if WHAT == "another version" and RANK == 1:
        fingerprint.VERSION = "0.0.1"
    mine = shard(GRAPH)
    x = torch.randn(mine.num_targets, 2, 8, requires_grad=True)
    output = ga.attention(x, x, x, mine)
    if RANK == 1 and WHAT == "ends":
        os._exit(1)
    if RANK == 1 and WHAT == "is late":
        time.sleep(9)
    ga.attention(x, x, x, mine)
    (output * ga.attention(x, x, x, mine)).sum().backward()
    print("ran")
except Exception as error:
    print(
        f"after {time.monotonic() - begin:.0f} s {type(error).__name__}: {error}".replace("\n", " ")
    )
