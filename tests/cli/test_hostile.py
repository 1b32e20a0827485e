"""Names that others chose, expressions and files that are none, and a Python without docstrings."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
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
# as a file system names them that knows less than UTF-8
NAMES = {key: os.fsdecode(name.encode("utf-8", "surrogateescape")) for key, name in NAMES.items()}
LINKS = {"loop": "loop", "zero": "/dev/zero", "nowhere": "no/such/file", "full": "/dev/full"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hostile(text):
    """Whether a terminal would act on it."""
    return (
        re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)
        is not None
    )


@pytest.mark.sample(3)
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
    wrong = shell.words(["audit", "causal(4)", "--mask", f"./{path}"])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert not hostile(wrong.stderr)
    assert len(wrong.stderr.splitlines()) == 1
    absent = shell.words(["show", f"./no{path}"])
    assert absent.exit_code == 2
    assert not hostile(absent.stderr)
    assert len(absent.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", list(NAMES)[1::2])
def test_such_a_file_may_be_loaded_in_an_expression(shell, folder, name):
    path = f"./{NAMES[name]}"
    np.save(folder / path, MASK)
    what = f"full(4) - load({path!a})"
    assert json.loads(shell.words(["show", what, "--json"]).stdout)["facts"]["num_edges"] == 6
    for wrong in (f"knn(load({path!a}), k=2)", f"load({path!a}, x=1)", f"load({path + 'no'!a})"):
        done = shell.words(["show", wrong])
        assert done.exit_code == 2
        assert not hostile(done.stderr)
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "what",
    ["(" * 5000, "~" * 20000 + "full(2)", "full(" + "9" * 5000 + ")", "full(2)" + ".reverse()" * 5000, "full(\udcff)",
     "full(2)\0", "full(2" + "," * 5000, "load('x' * 9)", "full(10 ** 10 ** 10)", "full((lambda: 3)())",
     "load.__globals__", "load(path=1, path=2)", "load('/dev/zero')", "load('a' 'b')",
     "full(" + "[" * 150 + "]" * 150 + ")"],
)  # fmt: skip
def test_a_hostile_expression_is_refused_in_one_short_line(shell, what):
    done = shell.words(["show", what])
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 700
    assert not hostile(done.stderr)


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
    "command", ["show --out x.png", "show --save x.npz", "gallery --out x.html"]
)
@pytest.mark.parametrize("kind", ["fifo", "folder", "long", "no folder", "zero byte", "device"])
def test_what_cannot_be_written_is_refused_before_the_work(
    shell, folder, command, kind, monkeypatch
):
    name, flag, out = command.split()
    path = folder / out
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/full")
    out = {"long": "x" * 300 + path.suffix, "no folder": f"no/{out}", "zero byte": f"\0{out}"}.get(
        kind, out
    )
    before = sorted(os.listdir(folder))
    done = shell.words([name, *(["causal(4)"] if name != "gallery" else []), flag, out])
    assert done.exit_code == 2, done.output
    assert "is no file in a folder that can be written to" in done.stderr
    assert sorted(os.listdir(folder)) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_or_folder_without_rights_is_refused(shell, folder):
    (folder / "kept.png").write_bytes(b"")
    (folder / "kept.png").chmod(0o444)
    (folder / "shut").mkdir(mode=0o555)
    for out in ("kept.png", "shut/x.png"):
        assert (
            "in a folder that can be written to"
            in shell.words(["show", "causal(4)", "--out", out]).stderr
        )


@pytest.mark.slow  # imports torch once more
def test_an_ascii_terminal_without_a_home_will_do():
    """Python in LANG=C, with a home that nobody can write to, and another seed of hashes."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("LC_", "XDG_", "PYTHONUTF8", "PYTHONIO"))
    }
    env |= {
        "LANG": "C",
        "LC_ALL": "C",
        "HOME": "/proc/none",
        "PYTHONHASHSEED": "17",
        "PYTHONCOERCECLOCALE": "0",
    }
    env |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "GRAPHATTN_CACHE": "/proc/none"}
    words = [
        sys.executable,
        "-m",
        "graphattn",
        "show",
        "sliding_window(3, 2, causal=True) | random_neighbours(3, 1)",
    ]
    run = subprocess.run(words, env=env, capture_output=True, timeout=600, check=False)
    lines = run.stdout.decode("ascii").splitlines()
    assert run.returncode == 0, run.stderr
    assert lines[2].startswith("#")
    assert {*"".join(lines[2:5])} == {"#", ".", " "}


@pytest.mark.slow
def test_nothing_relies_on_asserts_which_python_may_leave_out():
    """They tell the type checker what is no None, and call nothing but isinstance."""
    for path in (ROOT / "graphattn").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                calls = [
                    ast.unparse(call.func)
                    for call in ast.walk(node.test)
                    if isinstance(call, ast.Call)
                ]
                assert set(calls) <= {"isinstance"}, (path, node.lineno)
                assert calls or "is not None" in ast.unparse(node.test), (path, node.lineno)


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
    with pytest.raises(
        OptionError,
        match=r"cannot write /proc/none/rates.json: .*; set GRAPHATTN_CACHE to a folder",
    ):
        rates.keep({}, "today")
