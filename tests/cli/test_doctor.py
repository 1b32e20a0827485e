"""graphattn doctor."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from graphattn.cli import doctor


@pytest.fixture
def quick(monkeypatch):
    """Without the self-check, which takes seconds."""
    check = {"backend": "dense", "device": "cpu", "ok": True, "detail": "largest error 0.0e+00"}
    monkeypatch.setattr(doctor, "_self_check", lambda: [check])


def test_doctor(shell):
    state = shell.json("doctor")
    assert state["versions"]["torch"] == metadata.version("torch")
    assert state["versions"]["llvmlite"]
    assert all(check["ok"] for check in state["self_check"])
    assert {check["backend"] for check in state["self_check"]} >= {
        "dense",
        "edges",
        "message_passing",
    }


@pytest.mark.usefixtures("quick")
def test_doctor_says_where_compiled_code_is_kept(shell):
    cache = shell.json("doctor")["cache"]
    assert cache["path"] is None or Path(cache["path"]).is_dir()
    done = shell("doctor")
    shown = " ".join(done.stdout.split())
    assert done.exit_code == 0
    assert shown.endswith("all is well")
    # no number: tests in other processes compile meanwhile
    assert re.search(r"\d+ functions, \d+ MiB, in", shown) or "nothing is kept on disk" in shown
    assert "a head width that is new 0.1 s more" in shown


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(
    "graphattn" not in metadata.packages_distributions(), reason="a tree not installed"
)
def test_doctor_says_how_to_get_what_is_missing(shell, monkeypatch):
    real = metadata.version
    assert shell.json("doctor")["extras"]["plot"]["matplotlib"]

    def version(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    state = shell.json("doctor")
    assert state["extras"]["plot"] == {"matplotlib": None}
    assert "pip install 'graphattn[plot]' brings matplotlib" in state["advice"]
