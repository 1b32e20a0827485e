"""Folders of shapes, trained on without drawing a page."""

from importlib import import_module

import pytest
from shape_folders import labelled_points, two_classes


@pytest.fixture
def no_page(monkeypatch):
    monkeypatch.setattr(import_module("graphattn.training.fit"), "save_report", lambda *args: None)


@pytest.fixture
def classes(tmp_path, no_page):
    return two_classes(tmp_path / "shapes")


@pytest.fixture
def parts(tmp_path, no_page):
    return labelled_points(tmp_path / "parts")
