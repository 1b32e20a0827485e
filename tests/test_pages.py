"""README and guide: their code runs, their commands exist, and both print what the pages show."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import fresh_python
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from graphattn.cli.app import app

ROOT = Path(__file__).parent.parent
GUIDE = sorted((ROOT / "examples" / "guide").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    *GUIDE,
    *sorted((ROOT / "examples" / "site" / "pages").glob("start_*.md")),
]
BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# they train, draw, or run every command
LONG = (
    "study",
    "models",
    "command_line",
    "compiling_and_training",
    "pictures",
    "port_a_model",
    "start_biases",
)
each_page = pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.stem in LONG else ()) for page in PAGES],
    ids=lambda page: page.stem,
)


def assert_shown(shown, printed):
    """``...`` on a page stands for anything."""
    assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), (
        f"shown:\n{shown}printed:\n{printed}"
    )


@each_page
def test_blocks_print_what_is_shown(page, tmp_path, monkeypatch, capsys):
    """A text block is what the python block before it prints; a console block has its own lines."""
    monkeypatch.delenv("COLUMNS", raising=False)
    # what is at work is said on a slow machine, too
    monkeypatch.setattr("graphattn.cli.output._LONG", 600.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = BLOCK.findall(page.read_text("utf-8"))
    assert blocks
    for kind, block in blocks:
        if kind == "python":
            capsys.readouterr()
            exec(compile(block, page.name, "exec"), {})
        elif kind == "text":
            assert_shown(block, capsys.readouterr().out)
        else:
            for line, shown in re.findall(
                r"^\$ graphattn (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
            ):
                assert_shown(
                    shown, CliRunner().invoke(app, shlex.split(line), prog_name="graphattn").output
                )


MIGRATION = [page for page in GUIDE if page.stem.startswith("from_")]


@pytest.mark.parametrize("page", MIGRATION, ids=lambda page: page.stem)
def test_code_before_and_after_a_migration_gives_the_same(page):
    """The first two blocks of a page set ``before`` and ``after``; a library that need not be
    installed is in a block that the test of pages does not run, ``py``.
    """
    results = {}
    for block in re.findall(r"^```py(?:thon)?\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[
        :2
    ]:
        for module in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE):
            pytest.importorskip(module)
        exec(compile(block, page.name, "exec"), results)
    torch.testing.assert_close(results["after"], results["before"], rtol=1e-5, atol=1e-5)
    assert results["after"].std() > 0.1


def commands_of(page):
    return re.findall(r"^(?:\$ |    )graphattn (\w+)(.*)$", page.read_text("utf-8"), re.MULTILINE)


@each_page
def test_commands_take_the_options_shown(page):
    for name, words in commands_of(page):
        get_command(app).commands[name].make_context(name, shlex.split(words, comments=True))


def test_the_command_line_page_shows_every_command():
    assert {name for name, _ in commands_of(ROOT / "examples/guide/command_line.md")} == set(
        get_command(app).commands
    )


@each_page
def test_code_is_as_wide_as_its_box_on_the_site(page):
    """Output of commands may be wider; its box scrolls."""
    blocks = re.findall(r"(?ms)^```(?:python|py|sh)\n(.*?)^```", page.read_text("utf-8"))
    blocks += re.findall(r"(?m)^    .*|^\$ .*", page.read_text("utf-8"))
    assert [line for block in blocks for line in block.splitlines() if len(line) > 100] == []


@each_page
def test_links_lead_to_files(page):
    links = [
        link for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")) if "://" not in link
    ]
    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []


def test_readme_is_short_and_holds_few_numbers():
    """At most 120 lines and 900 words; a paragraph has three numbers at most."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("\n") <= 120
    assert len(readme.split()) <= 900
    prose = re.sub(r"(?ms)^```.*?^```|^    .*?$|^\|.*?$|\]\([^)]*\)|`[^`]*`", "", readme)
    # versions and names of machines are none
    prose = re.sub(r"0\.2\.0|3\.11|2\.10|x86-64|\b\w+[-.]\d\w*", "", prose)
    crowded = [text for text in prose.split("\n\n") if len(re.findall(r"\d[\d.,]*", text)) > 3]
    assert crowded == []


def test_the_guide_is_whole_in_the_contents_of_the_site():
    contents = (ROOT / "examples" / "site" / "pages" / "guide.md").read_text("utf-8")
    assert [page.stem for page in GUIDE if f"examples/guide/{page.stem}\n" not in contents] == []


def installed_wheel(folder):
    """An empty folder into which pip has put a wheel built in ``folder``."""
    shutil.copytree(
        ROOT / "graphattn", folder / "graphattn", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    build = "import setuptools.build_meta as b; b.build_wheel('.')"
    fresh_python.run(build, cwd=folder, expect=0)
    (wheel,) = folder.glob("*.whl")
    offline = ("-q", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    words = ("install", *offline, "--target", "there", wheel.name)
    fresh_python.run(None, *words, module="pip", cwd=folder, expect=0)
    return folder / "there"


@pytest.mark.slow
def test_an_installed_wheel_is_whole_and_runs_the_command_line_and_the_first_block(tmp_path):
    wheel_folder = installed_wheel(tmp_path)
    files = [path.relative_to(ROOT) for path in (ROOT / "graphattn").rglob("*") if path.is_file()]
    files = [name for name in files if "__pycache__" not in name.parts]
    assert [name for name in files if not (wheel_folder / name).exists()] == []
    kind, block = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))[0]
    begin = f"import sys; sys.path.insert(0, {str(wheel_folder)!r}); import graphattn\n"
    begin += f"assert graphattn.__file__.startswith({str(wheel_folder)!r}), graphattn.__file__\n"
    assert kind == "python"
    fresh_python.run(begin + block, cwd=wheel_folder, expect=0)
    command = f"{begin}import runpy; sys.argv = ['graphattn', 'show', 'causal']\n"
    command += f"runpy.run_path({str(wheel_folder / 'bin' / 'graphattn')!r}, run_name='__main__')"
    assert "causal(48)" in fresh_python.run(command, cwd=wheel_folder, expect=0).stdout
