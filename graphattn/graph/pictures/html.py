"""A mask as a small PNG for notebooks, without a plotting library."""

import base64
import struct
import zlib
from html import escape

import torch
from torch import Tensor

from ..edges import Edges
from .draw import drawable
from .near_view import ORDER, degrees, in_near_order

MOST_CELLS = 128
_PIXELS = 192  # on the page, along the longer side
# none; some, weak to strong
_SHADES = ((255, 255, 255), (157, 187, 226), (60, 106, 168), (11, 28, 51))


def mask_page(title: str, edges: Edges) -> str:
    """One line of text and the mask below it.

    A cell of a large mask is darker with the share of its pairs. Large listed graphs are drawn with
    neighbours together where that shows more.
    """
    if not drawable(edges):
        return page(title, None)
    near = in_near_order(edges, _side(edges))
    if near is None:
        return page(title, mask_shares(edges), degrees(edges))
    return page(title, mask_shares(near), f"{degrees(edges)} {ORDER}")


def _side(edges: Edges) -> int:
    return max(1, -(-max(edges.num_targets, edges.num_sources) // MOST_CELLS))


def mask_shares(edges: Edges) -> Tensor:
    """Edges per pair in each cell, float64, in at most 128 rows and columns of cells.

    A cell of a small mask is one pair.
    """
    return block_shares(edges, _side(edges), _side(edges))


def block_shares(edges: Edges, height: int, width: int) -> Tensor:
    """Edges per pair in every block of ``height`` targets by ``width`` sources, float64."""
    return edges.block_counts(height, width) / edges.block_areas(height, width).double()


def page(title: str, shares: Tensor | None, below: str = "") -> str:
    """``title``, cells in [0, 1] as an inline picture, and a line below it."""
    line = f"<code>{escape(title)}</code>"
    if shares is None or shares.numel() == 0:
        return f"<div>{line}</div>"
    height, width = shares.shape
    scale = max(1, _PIXELS // max(height, width))
    style = f"width:{width * scale}px;height:{height * scale}px;image-rendering:pixelated;border:1px solid #9aa5b1"
    alt = "mask: targets are rows, sources are columns"
    picture = image(png(shares), alt, title=alt, style=style)
    if below:
        picture += f"<br><small>{escape(below)}</small>"
    return f"<div>{line}<br>{picture}</div>"


def image(picture: bytes, alt: str = "", **attributes: object) -> str:
    """A picture in PNG as an element of a page that needs no other file; ``class_`` is the class.

    Example:
        >>> image(b"", "mask", width=96)
        '<img alt="mask" width="96" src="data:image/png;base64,">'
    """
    named = "".join(
        f'{name.rstrip("_")}="{escape(str(value))}" ' for name, value in attributes.items()
    )
    return (
        f'<img alt="{escape(alt)}" '
        f'{named}src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    )


def png(shares: Tensor) -> bytes:
    """Cells in [0, 1] as a PNG of one pixel each: white is 0, then darker with the square root.

    Source: W3C, "Portable Network Graphics (PNG) Specification (Second Edition)", sections 5 and
    11.

    Example:
        >>> png(torch.tensor([[0.0, 1.0]]))[:4]
        b'\\x89PNG'
    """
    height, width = shares.shape
    levels = (shares.clamp(0, 1).sqrt() * 255).round().clamp(min=1)
    levels = levels.where(shares > 0, 0).to(torch.uint8)
    # each row starts with its filter: 0
    rows = torch.cat((torch.zeros(height, 1, dtype=torch.uint8), levels.cpu()), 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits that index a palette
    # 256 colours: white, then the shades of some, evenly mixed
    shades = torch.tensor(_SHADES[1:], dtype=torch.float64)
    at = torch.linspace(0, len(shades) - 1, 255)
    low = at.floor().long().clamp(max=len(shades) - 2)
    mixed = torch.lerp(shades[low], shades[low + 1], (at - low)[:, None].double())
    parts = (
        (b"IHDR", head),
        (b"PLTE", bytes(_SHADES[0]) + mixed.round().to(torch.uint8).numpy().tobytes()),
        (b"IDAT", zlib.compress(rows.numpy().tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
