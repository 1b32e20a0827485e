"""The README as the long description of a release, whose links lead to the files of its tag."""

import re
import runpy
from pathlib import Path

from setuptools import setup

HOME = "https://github.com/graphattn/graphattn"
ROOT = Path(__file__).parent


def long_description() -> str:
    """The README with absolute links: pictures as files, others as pages."""
    version = runpy.run_path(str(ROOT / "graphattn" / "versions.py"))["VERSION"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = r"\]\((?![a-z]+:|#)"
    text = re.sub(r"(!\[[^\]]*)" + relative, rf"\1]({HOME}/raw/v{version}/", text)
    return re.sub(relative, f"]({HOME}/blob/v{version}/", text)


setup(long_description=long_description(), long_description_content_type="text/markdown")
