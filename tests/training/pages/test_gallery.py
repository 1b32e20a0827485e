"""Shapes of a run's page that turn, with classes to switch on and off."""

import base64
import html
import json
import re
import zlib

import pytest
import torch

from graphattn.shapes import Shape
from graphattn.training.pages import gallery

NAMES = ("ground", "<low> & wide", "roof")
BOX = re.compile(r'<input type="checkbox" checked value="\[[^"]*\]"><i [^>]*></i>([^<]*)</label>')


def shape(points, faces=0):
    draw = torch.Generator().manual_seed(0)
    made = Shape(pos=torch.randn(points, 3, generator=draw))
    if faces:
        made.face = torch.randint(points, (3, faces), generator=draw)
    made.label = torch.arange(points) % 3
    return made


def nodes_of(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(data)["sets"][0]


def test_each_class_has_a_box_to_tick_on_a_page_inside_the_figure():
    one = shape(31)
    page = gallery._turning(one, one.label.roll(1), NAMES)
    figure = gallery._figure("a.ply", "", "said", page)
    (inner,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', figure)
    assert html.unescape(inner) == page
    truth, guess, error = nodes_of(page)["colors"]
    for colours in (truth, guess):
        assert {html.unescape(name) for name in BOX.findall(colours["legend"])} == set(NAMES)
    assert [each["name"] for each in (truth, guess, error)] == ["label", "prediction", "error"]
    assert not re.search(r"https?://(?!www.w3.org)", page)
    assert "<iframe" not in gallery._figure("a.ply", "", "said", "")


@pytest.mark.parametrize("points", [29, 31, 997])
def test_of_a_large_cloud_a_part_is_shown(points, monkeypatch):
    monkeypatch.setattr(gallery, "_POINTS", 31)
    one = shape(points)
    page = gallery._turning(one, one.label, NAMES)
    places = zlib.decompress(base64.b64decode(nodes_of(page)["at"]))
    assert len(places) == 2 * 3 * min(points, 31)  # 16 bits for each coordinate


def test_a_mesh_of_too_many_faces_is_a_still_picture(monkeypatch):
    monkeypatch.setattr(gallery, "_FACES", 11)
    assert gallery._turning(shape(31, faces=12), torch.zeros(31).long(), NAMES) == ""
    assert "<canvas" in gallery._turning(shape(31, faces=11), torch.zeros(31).long(), NAMES)
