"""Two processes with half of a batch each have the gradients of one process with the whole of
it.
"""

import gc
import os
import sys
from datetime import timedelta
from pathlib import Path

import fresh_python
import pytest
import torch
from every_model import MODELS, small
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def gradients_of(name, rank):
    """After two steps in this process and its twin; every parameter must have one."""
    model, inputs = small(name, batch=4)
    module = DistributedDataParallel(model)  # refuses a second step if a parameter had no gradient
    for _ in range(2):
        model.zero_grad()
        module(*(x.chunk(2)[rank] for x in inputs)).square().mean().backward()
    return [p.grad for p in model.parameters() if p.requires_grad]


def gradients(rank, store):
    """Of every model. No module outlives the group: the last one to hold it would join Gloo's
    thread while it has the GIL that this thread waits for (`~ProcessGroupGloo` against
    `~AsyncWork`), and the process would never end."""
    group = {
        "init_method": f"file://{store}",
        "rank": rank,
        "world_size": 2,
        "timeout": timedelta(minutes=10),
    }
    distributed.init_process_group("gloo", **group)
    try:
        return {name: gradients_of(name, rank) for name in MODELS}
    finally:
        gc.collect()  # a module is part of a cycle
        distributed.destroy_process_group()


@pytest.mark.slow
def test_gradients_of_two_processes_are_those_of_the_whole_batch(tmp_path):
    fresh_python.run(None, str(tmp_path), file=__file__, expect=0)
    found, theirs = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in MODELS:
        model, inputs = small(name, batch=4)
        model(*inputs).square().mean().backward()
        each = [p.grad for p in model.parameters() if p.requires_grad]
        largest = max(float(grad.abs().max()) for grad in each)
        for grad, one, two in zip(each, found[name], theirs[name], strict=True):
            assert torch.equal(one, two), name
            torch.testing.assert_close(one, grad, rtol=0, atol=1e-5 * largest, msg=name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, other = Path(sys.argv[1]), os.fork()  # no thread runs yet
    rank = int(other == 0)
    torch.save(gradients(rank, folder / "store"), folder / f"{rank}.pt")
    if other:
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
