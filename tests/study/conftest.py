"""The tiny study that the tests of this folder share."""

import pytest
from tiny_study import tiny_run

from graphattn import study


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The report of one such run; its folder is not to be changed."""
    return tiny_run(tmp_path_factory.mktemp("studies") / "tiny", claims=[study.Claim("window", "full")])
