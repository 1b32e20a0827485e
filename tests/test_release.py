"""A release: one version, and metadata that are true."""

import re
import tomllib
from pathlib import Path

import graphattn as ga

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_no_file_names_an_address_that_is_not_there():
    """There is no public repository yet."""
    names = ("README.md", "CITATION.cff", "pyproject.toml", "CONTRIBUTING.md")
    texts = "".join((ROOT / name).read_text("utf-8") for name in names)
    assert "urls" not in PROJECT
    assert re.findall(r"github\.com/graphattn|REPOSITORY|<this repository>", texts) == []


def test_changelog_and_citation_are_of_this_version_and_date():
    version = re.escape(ga.__version__)
    found = re.search(
        rf"^## {version} \((unreleased|\d{{4}}-\d\d-\d\d)\)$",
        (ROOT / "CHANGELOG.md").read_text("utf-8"),
        re.M,
    )
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {ga.__version__}\n" in citation
    dated = re.findall(r"^date-released: (.*)$", citation, re.M)
    assert dated == [found[1]] * (found[1] != "unreleased")


def test_what_the_workflow_runs_is_what_the_metadata_allow():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    pythons = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
    quoted = ", ".join(f'"{one}"' for one in pythons)
    assert f"python: [{quoted}]" in workflow
    lowest = next(one for one in PROJECT["dependencies"] if one.startswith("torch>="))
    assert lowest.replace(">=", "==") in workflow
    assert {f"{name}-latest" for name in ("ubuntu", "macos", "windows")} <= set(
        re.findall(r"[a-z]+-latest", workflow)
    )
