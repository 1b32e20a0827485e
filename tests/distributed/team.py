"""Run by :mod:`ranks`: a training of several processes, whose first one is killed where the last
word says.
"""

import json
import os
import signal
import sys

import torch.distributed as dist

import graphattn as ga

folder, out, options, end = sys.argv[1:]


def tell(progress):
    if progress.phase == "training" and progress.done > float(end):
        os.kill(os.getpid(), signal.SIGKILL)


try:
    if os.path.exists(f"{out}/run.json"):
        result = ga.training.resume(out, tell=tell)
    else:
        result = ga.training.train(folder, out, tell=tell, **json.loads(options))
    print(json.dumps({"name": dist.get_rank(), **result.scores}))
    if dist.get_rank() == 0:
        print(json.dumps({"done": True}))
except ga.GraphAttnError as error:
    print(type(error).__name__, error)
