"""The command line, run in this process."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from graphattn.cli import output
from graphattn.cli.app import app


class Shell:
    """``graphattn ...`` with its output, its errors and its status.

    Paths in ``folder``, which holds temporary files, stand in a line as they are, with their spaces.
    """

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, line, *, env=None):
        words = shlex.split(line.replace(self.folder, "FOLDER"))
        words = [word.replace("FOLDER", self.folder) for word in words]
        return CliRunner().invoke(app, words, prog_name="graphattn", env=env)

    def words(self, words):
        """The same of words that no shell would split."""
        return CliRunner().invoke(app, words, prog_name="graphattn")

    def json(self, line, status=0):
        """The one document on stdout of a command with --json."""
        done = self(f"{line} --json")
        assert done.exit_code == status, done.output
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout)

    def error(self, line, status=2):
        """The line on stderr of a command that fails, which is all that it says."""
        done = self(line)
        assert done.exit_code == status, done.output
        assert done.stdout == ""
        wrong = self.json(line, status)["error"]
        assert done.stderr.splitlines() == [f"error: {wrong['message']}"]
        assert wrong["type"]
        return wrong["message"]


@pytest.fixture
def shell(monkeypatch, tmp_path_factory):
    # on a machine that stalls, more would stand on stderr
    monkeypatch.setattr(output, "_LONG", 1000.0)
    for name in ("COLUMNS", "FORCE_COLOR", "GRAPHATTN_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return Shell(tmp_path_factory.getbasetemp())
