"""Files are there whole or not at all, whoever writes them."""

import os

import pytest
import torch

import graphattn as ga
from graphattn.convert.files import save_edges
from graphattn.errors import GraphAttnError
from graphattn.io.writing import save_picture
from graphattn.viz import plot

GRAPH = ga.graphs.full(9)
WRITERS = {
    "page.html": lambda path: ga.viz.to_html(GRAPH, path, torch.rand(9, 3)),
    "picture.png": lambda path: save_picture(path, plot(GRAPH)),
    "picture.svg": lambda path: save_picture(path, plot(GRAPH)),
    "graph.json": lambda path: ga.save(GRAPH, path),
    "edges.csv": lambda path: save_edges(path, GRAPH),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_survives_a_failed_write(name, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(b"before")

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(
            GraphAttnError,
            match="expected a file that can be written, got: No space left on device",
        ):
            WRITERS[name](str(path))
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == [name]
    WRITERS[name](str(path))
    assert path.stat().st_size > 50
