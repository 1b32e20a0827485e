"""A release: one version, complete metadata, and a long description that reads anywhere."""

import re
import runpy
import tomllib
from pathlib import Path

import setuptools

import graphattn as ga

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_long_description_is_the_readme_with_links_that_lead_somewhere(monkeypatch):
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", given["long_description"])
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", readme)) > 30
    assert [link for link in links if not re.match("https?://|#", link)] == []
    home = PROJECT["urls"]["Source"]
    assert f"]({home}/raw/v{ga.__version__}/examples/pictures/zoo.png)" in given["long_description"]
    assert f"]({home}/blob/v{ga.__version__}/examples/guide/graphs.md)" in given["long_description"]


def test_changelog_and_citation_are_of_this_version_and_dated():
    version = re.escape(ga.__version__)
    found = re.search(
        rf"^## {version} \((\d{{4}}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {ga.__version__}\n" in citation
    assert f"\ndate-released: {found[1]}\n" in citation


def test_what_the_workflow_runs_is_what_the_metadata_allow():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
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
