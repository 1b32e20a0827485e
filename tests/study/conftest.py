"""The tiny study that the tests of this folder share."""

import sys

import pytest
from tiny_study import tiny_run

from graphattn import study
from graphattn.study import figure as picture


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The report of one such run; its folder is not to be changed."""
    return tiny_run(
        tmp_path_factory.mktemp("studies") / "tiny", claims=[study.Claim("window", "full")]
    )


@pytest.fixture
def pictures():
    """For a test that looks at the figures of its own study."""


@pytest.fixture(autouse=True)
def no_pictures(request, monkeypatch):
    """Reports without figures, which take longer than such a study."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(picture, "draw", lambda report: None)
        monkeypatch.setattr(
            sys.modules[study.Report.__module__], "save_picture", lambda *given: None
        )
