"""Errors, help, terminals and pipes."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graphattn.cli import help, names, output, values
from graphattn.cli.files import recipes
from graphattn.cli.options import options_of, taken
from graphattn.cli.what import patterns
from graphattn.graphs import BUILDERS
from graphattn.interop import files


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show", "Missing argument 'WHAT'; see graphattn show --help"),
        ("bogus", "No such command 'bogus'"),
        ("show sliding_windw --size 5", "did you mean sliding_window?"),
        ("show qqq", "no file either (a file exists, or has a dot or slash in it); graphattn patterns lists all"),
        ("show --size 5 causal", "WHAT, a pattern or a file, comes before its options; got --size first"),
        ("show causal", "causal needs --size N; causal takes --size N [--num-sources N] [--align end|start]"),
        ("show causal --size", "--size needs a value: a whole number"),
        ("show causal --size --align end", "--size needs a value"),
        ("show causal --size 5x5", "--size must be a whole number, got '5x5'"),
        ("show causal --size 5.0", "--size must be a whole number, got '5.0'"),
        ("show causal --size=", "--size must be a whole number, got ''"),
        ("show causal --size 5 --size 7", "--size is given twice"),
        ("show causal --size 5 --num-targets 5", "--num-targets is given twice"),
        ("show causal --size 5 7", "unexpected '7': options begin with --"),
        ("show causal --size 5 -k 7", "no option -k"),
        ("show causal --size 5 --windw 3", "no option --windw; causal takes --size N"),
        ("show window --size 5 --windw 3", "no option --windw (did you mean --window?); window takes"),
        ("show causal --size 5 --align middle", "--align must be end or start, got 'middle'"),
        ("show causal --size -5", "--size must be a whole number >= 0, got -5"),
        ("show window --size 5 --window 3 --no-causal=3", "--no-causal takes no value"),
        ("show window --size 5 --window 4 --no-causal", "with --no-causal it must be odd, got 4"),
        ("show swin --size 5x7 --cell 2", "pass --pad to cut"),
        ("show swin --size 5xq --cell 2", "--size must be whole numbers such as 3x5, got '5xq'"),
        ("show full --size 5 --as mask", "--as says what a file holds"),
        ("show full --size 5 --as foo", "Invalid value for '--as'"),
        ("show full --size 5 --out here.foo", "--out must end in .png"),
        ("show full --size 5 --out here.jpg", "--out must end in .png or .pdf or .svg, got here.jpg"),
        ("show full --size 5 --out nowhere/here.png", "--out: nowhere/here.png is no file in a folder that can be"),
        ("show full --size 5 --save here.txt", "--save must end in .npz or .csv, got here.txt"),
        ("show full --size 5 --save nowhere/here.npz", "--save: nowhere/here.npz is no file in a folder"),
        ("show self_loops --size 0 --save nothing.csv", "expected a graph with edges"),
        ("show points", "points is a kind of file: name the file, such as points.xyz; graphattn show points --help"),
        ("explain full --size 5 --dtype int8", "'int8' is not one of"),
        ("explain full --size 5 --device foo", "--device must be cpu, cuda"),
        ("explain full --size 5 --device mps", "--device must be cpu, cuda"),
        ("explain full --size 5 --device cuda:99", "CUDA devices here; leave it out for the CPU"),
        ("explain full --size 5 --heads 0", "Invalid value for '--heads'"),
        ("explain full --size 5 --heads 5 --kv-heads 2", "--heads must be a multiple of kv_heads >= 1, got --heads 5"),
        ("verify full --size 5 --kv-heads 2", "--kv-heads goes with --heads"),
        ("verify full --size 5 --heads 5 --kv-heads 2", "heads must be"),
        ("doctor now", "unexpected"),
    ],
)
def test_errors_are_one_line_with_status_2(shell, line, said):
    assert said in shell.error(line)


def test_a_name_that_is_a_pattern_and_a_file_is_the_pattern(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "causal").write_text("0 1\n")
    assert shell.json("show causal --size 3")["name"] == "causal(3)"
    assert "a file of that name is ./causal" in shell.error("show causal --as edges")


def test_debug_shows_where(shell):
    for done in (shell("show causal --debug"), shell("show causal", env={"GRAPHATTN_DEBUG": "1"})):
        assert done.exit_code == 2
        assert "Traceback" in done.stderr
        assert done.stderr.endswith("[--align end|start]\n")
    assert "Traceback" not in shell("show causal", env={"GRAPHATTN_DEBUG": "0"}).stderr
    assert json.loads(shell("show causal --debug --json").stdout)["error"]["type"] == "OptionError"


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (MemoryError(), 2, "error: not enough memory for this graph; "),
        (
            RuntimeError("can't allocate memory: you tried to allocate 1000 bytes"),
            2,
            "error: not enough memory for this graph, it takes 1,000 bytes; ",
        ),
        (OSError(28, "No space left on device"), 2, "error: [Errno 28] No space left on device\n"),
        (KeyError("x"), 70, "error: unexpected KeyError: 'x'; this is a fault of graphattn"),
    ],
)
def test_what_nobody_asked_for(shell, monkeypatch, raised, status, said):
    def builder(size: int):
        raise raised

    monkeypatch.setitem(BUILDERS, "builder", builder)
    monkeypatch.setitem(names.NAMES, "builder", "builder")
    done = shell("show builder --size 3")
    assert done.exit_code == status
    assert done.stderr.startswith(said)
    assert said.removeprefix("error: ").strip() in shell.json("show builder --size 3", status)["error"]["message"]


def test_help_names_everything(shell):
    for command in ("show", "explain", "verify"):
        text = shell(f"{command} --help").stdout
        flat = " ".join(text.split())
        assert all(name in flat for name in (*BUILDERS, *names.NAMES, *names.HELD.values()))
        assert max(map(len, text.splitlines())) <= 80
    text = shell("patterns").stdout
    flat = " ".join(text.split())
    for builder in patterns():
        for option in options_of(builder):
            assert option.usage in flat
    for kind in ("mesh", "mesh --faces", "points --k", "points --radius", "edges", "mask"):
        assert f"\n  {kind}\n" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("kind", names.ENDINGS)
def test_help_of_a_kind_of_file(shell, kind):
    text = shell(f"show {kind} --help").stdout
    flat = " ".join(text.split())
    recipe = recipes()[kind]
    for builder in recipe.builders.values():
        assert all(f"{flag}" in flat for option in recipe.options(builder) for flag in option.flags)
    assert all(ending in flat for ending in names.ENDINGS[kind])
    assert max(map(len, text.splitlines())) <= 80
    assert "``" not in text


def test_endings_in_help_are_the_loaders():
    meshes = tuple(files._formats.READERS["mesh"])
    points = (*files.points.TEXT, ".npy", *meshes)
    known = {"mesh": meshes, "points": points, "edges": files.edges.endings(), "mask": (".npy",)}
    assert {kind: set(endings) for kind, endings in known.items()} == {k: set(v) for k, v in names.ENDINGS.items()}
    assert names.SAVED == files.save.KINDS


def test_what_help_recommends_runs(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(Path(__file__).parents[2] / "examples")
    np.random.seed(0)  # noqa: NPY002 (what help tells to type is short)
    for lines in help.MADE.values():
        for line in lines:
            exec(line, {})
    for line in help.examples():
        done = shell(line)
        assert done.exit_code == 0, (line, done.output)
    assert (tmp_path / "window.png").stat().st_size > 1000
    shown = [
        shell(f"{command} {more} --help").stdout for command in ("show", "verify") for more in ("", *names.ENDINGS)
    ]
    told = {
        found for page in shown for found in re.findall(r"^  graphattn (\w+ .*? --.*?)(?: +#.*)?$", page, re.MULTILINE)
    }
    assert {line for line in told if "--help" not in line} <= set(help.examples())


def test_help_does_not_wait_for_torch():
    for words in (
        "--help",
        "--version",
        "",
        "show --help",
        "explain --help",
        "verify --help",
        "doctor --help",
        "show",
    ):
        code = f"""import sys
sys.argv = ["graphattn", *{words.split()!r}]
import graphattn.cli
try:
    graphattn.cli.main()
except SystemExit:
    print("torch" in sys.modules, file=sys.stderr)"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.endswith("False\n"), (words, done.stderr)


def test_help_of_the_program_and_of_one_pattern(shell):
    assert shell("--help").exit_code == 0
    bare = shell("")
    assert (bare.exit_code, bare.stdout.startswith("Usage: graphattn")) == (2, True)
    for command in ("show", "explain", "verify", "doctor"):
        assert command in bare.stdout
    page = shell("verify swin --help").stdout
    usage = "Usage: graphattn verify swin --size NxN --cell NxN [--shift NxN] [--pad] [--read-padding] [OPTIONS] "
    assert " ".join(page.split()).startswith(usage)
    assert max(map(len, shell("show radius --help").stdout.splitlines())) <= 80
    assert "Allow axes that are not a multiple of cell" in page
    assert "``" not in page
    assert shell("--version").stdout.startswith("graphattn 0.")


def test_every_builder_can_be_typed():
    from graphattn.cli.options import untypable

    assert [builder.__name__ for builder in patterns() if untypable(builder)] == []


def test_no_option_of_a_pattern_is_taken_by_a_command():
    flags = [flag for builder in patterns() for option in options_of(builder) for flag in option.flags]
    assert {"--json", "--seed", "--batch"} <= taken()
    assert not taken() & set(flags)
    assert "--graph-batch" in flags


@pytest.mark.parametrize("hint", [dict, list[int], None, tuple[dict, ...]])
def test_what_cannot_be_typed_has_no_reader(hint):
    assert values.reader(hint) is None


def test_a_narrow_terminal_gets_the_mask_without_blanks(shell):
    wide = shell("show causal --size 31").stdout
    narrow = shell("show causal --size 31", env={"COLUMNS": "40"}).stdout
    line = next(line for line in wide.splitlines() if line.startswith("█"))
    assert len(line) == 61
    assert line.replace(" ", "") in narrow.splitlines()
    assert line not in narrow
    assert max(len(line) for line in narrow.splitlines()[2:]) <= 40


def test_progress_is_for_terminals_and_for_what_takes_long(monkeypatch):
    class Terminal(io.StringIO):
        encoding = "ascii"

        def isatty(self):
            return True

    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with output.step("counting ░") as tell:
        wait_for("counting -", terminal)
        tell("sheep")
        wait_for("counting -: sheep", terminal)
    assert terminal.getvalue().isascii()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(output, "_LONG", 1000.0)
    with output.step("quick"):
        pass
    monkeypatch.setattr(output, "_LONG", 0.01)
    with output.step("slow") as tell:
        tell("not without a terminal")
        wait_for("slow", pipe)
    assert pipe.getvalue() == "graphattn: slow ...\n"


def wait_for(text, stream):
    """Until another thread has written it; two minutes are for a machine that is very busy."""
    for _ in range(12_000):
        if text in stream.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(f"no {text!r} in {stream.getvalue()!r}")


def run(*words, **settings):
    env = {**os.environ, "NO_COLOR": "1", **settings.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "graphattn", *words], env=env, **settings)


def test_without_block_characters_in_another_process():
    env = {"PYTHONIOENCODING": "ascii"}
    shown = run("show", "causal", "--size", "3", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = shown.communicate(timeout=600)
    assert (shown.returncode, err) == (0, b"")
    assert b"\n\n# . .\n# # .\n# # #\n\ntargets" in out


def test_nobody_reads_in_another_process():
    reading, writing = os.pipe()
    os.close(reading)
    deaf = run("show", "causal", "--size", "31", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (deaf.communicate(timeout=600)[1], deaf.returncode) == (b"", output.CLOSED)


@pytest.mark.slow
def test_interrupted_in_another_process():
    words = ("verify", "sliding_window", "--size", "2000003", "--window", "101")
    busy = run(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "graphattn: " in busy.stderr.readline()  # so it is at work
    out = err = None
    while out is None:  # a library that is just being imported may swallow one, as it may a user's
        busy.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = busy.communicate(timeout=20)
    assert (busy.returncode, out, err.splitlines()[-1]) == (130, "", "interrupted")
