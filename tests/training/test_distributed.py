"""Two processes with half of a batch each have the gradients of one process with the whole of it."""

import copy
import multiprocessing
from datetime import timedelta

import pytest
import torch
from every_model import MODELS, small
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.usefixtures("one_thread")


def gradients(models, rank, store):
    """Of every model, after two steps in this process and its twin; every parameter must have one."""
    torch.set_num_threads(1)
    group = {"init_method": f"file://{store}", "rank": rank, "world_size": 2, "timeout": timedelta(minutes=2)}
    distributed.init_process_group("gloo", **group)
    found = {}
    try:
        for name, (model, inputs) in models.items():
            module = DistributedDataParallel(model)  # refuses a second step if a parameter had no gradient
            for _ in range(2):
                model.zero_grad()
                module(*(x.chunk(2)[rank] for x in inputs)).square().mean().backward()
            found[name] = [p.grad.numpy() for p in model.parameters() if p.requires_grad]
    finally:
        distributed.destroy_process_group()
    return found


def twin(models, store, link):
    link.send(gradients(models, 1, store))


def test_gradients_of_two_processes_are_those_of_the_whole_batch(tmp_path):
    models = {name: small(name, batch=4) for name in MODELS}
    wanted = {}
    for name, (model, inputs) in models.items():
        whole = copy.deepcopy(model)
        whole(*inputs).square().mean().backward()
        wanted[name] = [p.grad for p in whole.parameters() if p.requires_grad]
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=twin, args=(models, tmp_path / "store", theirs), daemon=True
    )
    process.start()
    found = gradients(models, 0, tmp_path / "store")
    assert mine.poll(120), "the other process does not answer"
    other = mine.recv()
    process.join()
    for name, each in wanted.items():
        largest = max(float(grad.abs().max()) for grad in each)
        for grad, one, two in zip(each, found[name], other[name], strict=True):
            assert (one == two).all(), name
            torch.testing.assert_close(torch.from_numpy(one), grad, rtol=0, atol=1e-5 * largest, msg=name)
