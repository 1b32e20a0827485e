"""A wheel and an sdist, built and tried offline: what they hold, and whether they run where they are
installed.

    python .ci/release.py OUT      # OUT gets both; needs setuptools, and the dependencies

Each is installed without its sources into an empty environment, which sees the packages of this
one, and so is the clone, editable, in the folder that contains it. 2 minutes; nothing is published.
"""

import argparse
import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Folders of which the sdist holds every file that git tracks, and files beside them.
HELD = ("graphattn", "tests", "examples", ".ci")
BESIDE = (
    *("conftest.py", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile"),
    *("README.md", "pyproject.toml"),
)
FIELDS = ("Author", "Keywords", "Classifier", "License-Expression")
BUILD = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"
WHEEL = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
SMOKE = """
import os, sys
import torch
import graphattn as ga
here = os.path.realpath(os.path.dirname(ga.__file__))
assert here.startswith(os.path.realpath(sys.argv[1])), here
graph = ga.graphs.sliding_window(64, window=9, causal=False) | ga.graphs.global_tokens(64, [0])
layer = ga.nn.GraphAttention(32, 4)
print(ga.__version__, layer(torch.randn(64, 32), graph).shape)
assert ga.verify(layer, graph)
"""


def tracked() -> list[str]:
    """Files of the last commit, and those that are not ignored."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )[:-1]


def copied(files: list[str], folder: Path) -> Path:
    """A clone, without what is ignored."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(clone: Path, out: Path) -> tuple[Path, Path]:
    """The sdist of a clone, and the wheel of the sdist."""
    subprocess.run([sys.executable, "-c", BUILD, out], cwd=clone, check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        words = [sys.executable, "-c", WHEEL, out]
        subprocess.run(words, cwd=unpacked, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def check(sdist: Path, wheel: Path, files: list[str]) -> list[str]:
    """What is missing in them, a line each."""
    faults = []
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in files:
        if name.partition("/")[0] in HELD or name in BESIDE:
            faults += [f"sdist: {name} is missing"] * (name not in names)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        message = email.message_from_bytes(archive.read(metadata))
    for name in files:
        if name.startswith("graphattn/"):
            faults += [f"wheel: {name} is missing"] * (name not in names)
    faults += [
        f"wheel: {name} is too many" for name in names if name.startswith(("tests/", "examples/"))
    ]
    faults += [f"metadata: no {field}" for field in FIELDS if field not in message]
    text = message.get_payload()
    faults += [] if text else ["metadata: no long description"]
    return faults


def environment(folder: Path) -> Path:
    """An environment that sees the packages of this one, but graphattn; its python."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True)
    # a folder in a .pth is searched last, and its own .pth files are not read
    shared = sysconfig.get_path("purelib")
    Path(site.stdout.strip(), "shared.pth").write_text(f"{shared}\n", encoding="utf-8")
    return python


def run(home: Path, *words: object, **rest: Any) -> None:
    """Run a command in a folder, without the paths of the caller, whose sources would be found."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(list(map(str, words)), cwd=home, env=env, check=True, **rest)


def installed(python: Path, *words: object) -> None:
    """Install by pip of this environment, without a network."""
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "-q")
    command = ("-m", "pip", "install", "--disable-pip-version-check", *offline)
    run(python.parent, python, *command, *words)


def main() -> int:
    """The number of faults, at most 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="an empty or new folder for wheel and sdist")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        parser.error(f"OUT must be empty, got {out}")
    files = tracked()
    with tempfile.TemporaryDirectory() as folder:
        above = Path(folder)
        clone = copied(files, above / "clones" / "graphattn")
        sdist, wheel = build(copied(files, above / "built"), out)
        faults = check(sdist, wheel, files)
        print("\n".join(faults))
        for number, what in enumerate((wheel, sdist, clone)):
            home = above / f"environment{number}"
            python = environment(home)
            is_clone = what == clone
            installed(python, *["-e"] * is_clone, what)
            empty = above / "clones" if is_clone else home
            where = clone if is_clone else home
            run(empty, python, "-W", "ignore", "-c", SMOKE, where)
            command = python.with_name("graphattn")
            run(empty, command, "show", "causal(5)", stdout=subprocess.DEVNULL)
            print(f"{what.name}: installed and runs")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
