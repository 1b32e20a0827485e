"""Values of every kind, for arguments that expect another."""

from functools import cache

import numpy as np
import torch

import graphattn as ga
from graphattn import graphs


def nothing():
    """A function of no arguments."""
    return 0


class Odd:
    """An object of a class that nobody knows."""


@cache
def ours():
    causal = graphs.causal(3)
    return {
        "graph": causal,
        "pattern": graphs.causal(...),
        "heads": ga.PerHead((causal, graphs.full(3))),
        "schedule": [causal, causal],
        "relations": ga.Relations(near=causal),
    }


def wrong_kinds():
    """name -> value, fresh ones where they can be used up or changed."""
    return {
        "None": None,
        "text": "x",
        "no text": "",
        "bytes": b"x",
        "True": True,
        "zero": 0,
        "three": 3,
        "-1": -1,
        "10**30": 10**30,
        "2**63": 2**63,
        "2.5": 2.5,
        "nan": float("nan"),
        "inf": float("inf"),
        "complex": 1 + 2j,
        "tensor 0-d": torch.tensor(3),
        "tensor 0-d bool": torch.tensor(True),
        "tensor 1-d": torch.arange(3),
        "tensor negative": torch.tensor([-1, 2]),
        "tensor float": torch.tensor([0.5, 1.5, float("nan")]),
        "tensor 2-d": torch.ones(2, 3),
        "tensor complex": torch.ones(2, 2, dtype=torch.complex64),
        "tensor bool": torch.ones(3, 3, dtype=torch.bool),
        "tensor empty": torch.empty(0),
        "tensor sparse": torch.eye(3).to_sparse(),
        "tensor meta": torch.empty(3, 3, device="meta"),
        "tensor half": torch.ones(2, 3, dtype=torch.float16),
        "array": np.zeros(3),
        "array 0-d": np.array(3),
        "array of text": np.array(["a", "b"]),
        "array of objects": np.array([None, 1], dtype=object),
        "numpy float": np.float32(2.5),
        "numpy int": np.int64(3),
        "list": [1, 2],
        "no list": [],
        "list of text": ["a", "b"],
        "list of None": [None],
        "ragged": [[1], [2, 3]],
        "list of tensors": [torch.ones(2), torch.ones(3)],
        "tuple": (1, "a"),
        "huge tuple": (10**30, 10**30),
        "no tuple": (),
        "dict": {"a": 1},
        "no dict": {},
        "set": {1, 2},
        "iterator": iter([1, 2]),
        "range": range(3),
        "slice": slice(None),
        "object": Odd(),
        "class": Odd,
        "function": nothing,
        "ellipsis": ...,
        "dtype": torch.float32,
        "int dtype": torch.int64,
        "device": torch.device("meta"),
        "module": torch.nn.Linear(2, 2),
        **ours(),
        "graphs": [graphs.causal(3), graphs.full(2)],
    }
