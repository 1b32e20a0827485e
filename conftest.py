"""Seeds for every test and doctest: none depends on luck, nor on which ran before it, nor on which
process runs it.
"""

import collections
import contextlib
import gc
import os
import random
import zlib
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are small: a second thread only waits

import numpy as np
import pytest
import torch

with contextlib.suppress(ImportError):
    import hypothesis

    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "same", derandomize=True, database=None, deadline=None, suppress_health_check=slow
    )
    hypothesis.settings.load_profile("same")

#: Not looked into for doctests: importing it puts a device that is not there into the process.
collect_ignore = ["tests/gpu/no_device.py"]


def _seed(path, whose):
    """A number of each file's own: two files do not draw the same tensors, so no test sees its
    inputs as its data.
    """
    number = zlib.crc32(f"{Path(path).name} {whose}".encode())
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 (code under test may use it)
    # torch.manual_seed formats its caller's stack for each absent device
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector):
    """What a module draws when it is imported."""
    _seed(collector.path, "constants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """What a test and its fixtures draw; one number for all tests of a file, as they may share a
    fixture.
    """
    _seed(item.path, "tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of the cases of a test that is marked ``sample(k)``, all but every k-th are slow."""
    seen = collections.Counter()
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is None:
            continue
        test = item.nodeid.partition("[")[0]
        if seen[test] % mark.args[0]:
            item.add_marker("slow")
        seen[test] += 1


def pytest_collection_finish(session):
    """What is imported by now is not collected: ``gc.collect()`` in a test looks only at what tests
    made.
    """
    gc.collect()
    gc.freeze()
    unlike = [item.nodeid for item in session.items if " at 0x" in item.nodeid]
    if unlike:  # workers must name a test alike
        raise pytest.UsageError(
            f"the name of a test has an address in it, which no two processes share: {unlike}"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each worker takes neighbours, so that the tests of a file share its fixtures and caches."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_terminal_summary(terminalreporter):
    """Says aloud that pages were not tried in a browser, and what is lacking."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reasons):
        if "NO BROWSER" in reason:
            terminalreporter.section(reason.removeprefix("Skipped: "), sep="!", red=True)
