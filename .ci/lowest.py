"""Tests with the lowest version of every dependency that pyproject.toml allows.

    python3 .ci/lowest.py /tmp/lowest tests/nn tests/graph         # makes the environment, then
    runs these tests python3 .ci/lowest.py /tmp/lowest --with torch==2.13.0 tests   # another
    version where the lowest is too large

torch from PyPI is a build for CUDA, of 0.9 GB and 3 GB of libraries. Tests marked slow are left
out.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("plot", "demo", "study", "mesh", "las", "crystal", "train", "hf", "test")
#: Tools of the tests, whose versions users do not meet.
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "setuptools", "sphinx")
LEFT_OUT = ("pygeodesic",)  # a peer of some tests, of numpy 2 alone
_FLOOR = re.compile(r"^([A-Za-z0-9_.-]+)(\[[\w,]+\])?>=([\w.]+)")


def floors(extras: tuple[str, ...] = EXTRAS) -> list[str]:
    """``name==version`` of the lowest versions that are allowed, tools as they are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [
        *project["dependencies"],
        *(one for extra in extras for one in project["optional-dependencies"][extra]),
    ]
    found = {}
    for requirement in needed:
        match = _FLOOR.match(requirement)
        if match is not None and match[1] not in LEFT_OUT:
            name, extra, version = match.groups()
            found[name] = requirement if name in TOOLS else f"{name}{extra or ''}=={version}"
    return sorted(found.values())


def main() -> int:
    """The exit status of pytest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("venv", type=Path, help="folder of the environment, which is made")
    parser.add_argument("tests", nargs="*", help="files or folders of tests; all by default")
    parser.add_argument(
        "--with", dest="other", action="append", default=[], metavar="NAME==VERSION"
    )
    given = parser.parse_intermixed_args()
    python = str(given.venv / "bin" / "python")
    replaced = [requirement.partition("==")[0] for requirement in given.other]
    lowest = [one for one in floors() if one.partition("==")[0].partition("[")[0] not in replaced]
    if not given.venv.exists():
        subprocess.run([sys.executable, "-m", "venv", given.venv], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *lowest, *given.other], check=True
        )
    subprocess.run([python, "-m", "pip", "freeze"], check=True)
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "pytest", "-m", "not slow", *given.tests]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
