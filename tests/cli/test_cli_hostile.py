"""Names that others chose, files that are none, streams that are closed or full, and a Python without docstrings."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphattn.cli import output
from graphattn.cli.bench import app

MASK = np.tri(4, dtype=bool)
NAMES = {
    "a line break": "a\nerror: b.npy",
    "an escape sequence": "e\x1b[31mred\x1b]0;title\x07.npy",
    "a control of eight bits": "c\x9b31m.npy",
    "text turned around": "\u202egnp.npy",
    "bytes that are no text": "bad\udcff.npy",
    "quotes and a command": "q'\"`$(id).npy",
    "a call": "causal(4).npy",
    "semicolons": "a;b.npy",
    "a dash first": "-x.npy",
}
LINKS = {"loop": "loop", "zero": "/dev/zero", "nowhere": "no/such/file", "full": "/dev/full"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hostile(text):
    """Whether a terminal would act on it."""
    return re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_be_called_anything_and_no_terminal_acts_on_it(shell, folder, name):
    path = NAMES[name]
    np.save(folder / path, MASK)
    asked = f"./{path}" if path.startswith("-") else path
    picture = f"{path[:-4]}.npz"
    for words in (["show", asked, "--save", f"./{picture}"], ["facts", asked], ["explain", asked]):
        done = shell.words(words)
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("AttentionGraph(") or words[0] == "explain"
        assert not hostile(done.output)
        assert "error: b" not in done.stdout.splitlines()
    assert os.path.exists(picture)
    assert json.loads(shell.words(["show", asked, "--json"]).stdout)["what"] == asked
    np.save(folder / path, np.ones((4, 4)))
    wrong = shell.words(["audit", "causal", "--size", "4", "--mask", f"./{path}"])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert not hostile(wrong.stderr)
    assert len(wrong.stderr.splitlines()) == 1
    absent = shell.words(["show", f"./no{path}"])
    assert absent.exit_code == 2
    assert not hostile(absent.stderr)
    assert len(absent.stderr.splitlines()) == 1


def test_a_name_that_begins_with_a_dash_is_told_how_to_be_typed(shell, folder):
    np.save(folder / "-x.npy", MASK)
    assert "a file of that name is ./-x.npy" in shell.words(["show", "-x.npy"]).stderr
    assert "a file of that name" not in shell.words(["show", "--window"]).stderr
    assert "WHAT must be a pattern or a file, got ''" in shell.words(["show", ""]).stderr
    assert "no layer stands between" in shell.words(["facts", " ; "]).stderr


@pytest.mark.parametrize("kind", ["loop", "zero", "nowhere", "full", "fifo", "folder"])
@pytest.mark.parametrize("ending", ["npy", "csv", "off"])
def test_what_is_no_file_is_refused_at_once(shell, folder, kind, ending):
    path = folder / f"x.{ending}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name if kind == "loop" else LINKS[kind])
    done = shell.words(["show", path.name])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path.name}: expected a ")


@pytest.mark.parametrize(
    "command", ["show --out x.png", "show --save x.npz", "bench --json x.json", "gallery --out x.png"]
)
@pytest.mark.parametrize("kind", ["fifo", "folder", "long", "no folder", "zero byte", "device", "loop"])
def test_what_cannot_be_written_is_refused_before_the_work(shell, folder, command, kind, monkeypatch):
    name, flag, out = command.split()
    path = folder / out
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/full")
    elif kind == "loop":
        path.symlink_to(path.name)
        if name != "show" or flag != "--save":
            pytest.skip("a loop is told when it is written to")
    out = {"long": "x" * 300 + path.suffix, "no folder": f"no/{out}", "zero byte": f"\0{out}"}.get(kind, out)
    before = sorted(os.listdir(folder))
    done = shell.words([name, *(["causal", "--size", "4"] if name != "gallery" else []), flag, out])
    assert done.exit_code == 2, done.output
    said = json.loads(done.stdout)["error"]["message"] if flag == "--json" else done.stderr
    wanted = (
        "expected a file that can be written" if kind == "loop" else "is no file in a folder that can be written to"
    )
    assert wanted in said
    assert sorted(os.listdir(folder)) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_or_folder_without_rights_is_refused(shell, folder):
    (folder / "kept.png").write_bytes(b"")
    (folder / "kept.png").chmod(0o444)
    (folder / "shut").mkdir(mode=0o555)
    for out in ("kept.png", "shut/x.png"):
        assert (
            "in a folder that can be written to" in shell.words(["show", "causal", "--size", "4", "--out", out]).stderr
        )


def test_streams_may_be_closed_or_full(monkeypatch, capsys):
    def status(*words):
        with pytest.raises(SystemExit) as done:
            app(list(words))
        return done.value.code

    monkeypatch.setattr(output, "_LONG", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert status("show", "causal", "--size", "3") == 0
        assert status("show", "nope") == 2
    assert capsys.readouterr().out.startswith("AttentionGraph(causal(3)")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert status("show", "causal", "--size", "3") == 0
        assert status("show", "nope") == 2
    assert capsys.readouterr().err.endswith("lists the literature's names\n")
    full = io.StringIO()
    full.flush = lambda: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert status("show", "causal", "--size", "3") == 2
        assert status("show", "causal", "--size", "3", "--json") == 2
        assert status("show", "nope", "--json") == 2
        patch.setattr(sys, "stderr", full)
        assert status("show", "causal", "--size", "3") == 2
    assert capsys.readouterr().err.count("No space left on device") == 2


CORE = """
import torch, graphattn as ga
assert False, "asserts are off"
torch.manual_seed(0)
graph = ga.graphs.sliding_window(16, 5) | ga.graphs.random_sources(16, 2, seed=0)
query = torch.randn(16, 4, 8, dtype=torch.float64, requires_grad=True)
found = [ga.attention(query, query, query, graph, backend=name) for name in ("dense", "message_passing")]
print((found[0] - found[1]).abs().max().item() < 1e-12, ga.facts(graph).num_edges == graph.mask().sum().item())
try:
    ga.graphs.sliding_window(4, 0)
except ga.GraphAttnError as error:
    print(error)
try:
    ga.assert_exact(lambda q, k, v: 2 * v, graph)
except ga.GraphAttnError as error:
    print(type(error).__name__)
from graphattn.cli.bench import app
app(["show", "swin", "--help"])
"""


@pytest.mark.slow  # imports torch once more, compiled without asserts
def test_nothing_relies_on_asserts_or_docstrings_and_an_ascii_terminal_without_a_home_will_do(tmp_path):
    """In one process: -OO, LANG=C, a home that nobody can write to, and another seed of hashes."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "XDG_", "PYTHONUTF8", "PYTHONIO"))}
    env |= {"LANG": "C", "LC_ALL": "C", "HOME": "/proc/none", "PYTHONHASHSEED": "17", "PYTHONCOERCECLOCALE": "0"}
    env |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii", "GRAPHATTN_CACHE": "/proc/none"}
    run = subprocess.run([sys.executable, "-OO", "-c", CORE], env=env, capture_output=True, timeout=600, check=False)
    said = run.stdout.decode("ascii").splitlines()
    assert said[:3] == ["True True", "window must be at least 1, got 0", "ExactnessError"], run.stderr
    assert "--shift" in run.stdout.decode("ascii")
    assert run.returncode == 0


def test_rates_that_cannot_be_kept_are_an_error_of_ours(monkeypatch):
    from graphattn.backends import rates
    from graphattn.errors import OptionError

    with monkeypatch.context() as patch:  # no home at all: nothing is known, and nothing fails
        for name in ("GRAPHATTN_CACHE", "XDG_CACHE_HOME", "HOME"):
            patch.delenv(name, raising=False)
        patch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
        assert not rates.measured()
        with pytest.raises(OptionError, match="set GRAPHATTN_CACHE to a folder"):
            rates.keep({}, "today")
    monkeypatch.setenv("GRAPHATTN_CACHE", "/proc/none")
    with pytest.raises(OptionError, match=r"cannot write /proc/none/rates.json: .*; set GRAPHATTN_CACHE to a folder"):
        rates.keep({}, "today")
