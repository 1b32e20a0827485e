"""BVH: motions of a skeleton, whose joints turn about their parents from frame to frame."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ....io.numbers import clean, rows
from ....io.reading import Blob, PathLike, read
from ..raw import Contents, Raw, reads
from .lines import ENDS, over_time

_MOTION = re.compile(rb"\bMOTION\s+Frames:\s*(\d+)\s+Frame\s+Time:\s*(\S+)[^\n]*\n")
_CHANNEL = re.compile(r"([XYZ])(position|rotation)", re.IGNORECASE)
_FIX = "export the motion again"
_SHOWN = 8  # names in a note


class _Skeleton(NamedTuple):
    """Joints, each after its parent."""

    names: list[str]
    parents: list[int]
    offsets: list[list[float]]
    channels: list[list[tuple[int, bool]]]
    """An axis, and True if it is turned about, for each of the numbers of a frame."""


@reads(
    ".bvh",
    contents=Contents(
        read="positions of joints and tips, frame by frame; `frame`, `joint`; lines from each to "
        "its parent, and to itself in the next frame",
        noted="names of the joints, seconds between frames",
        refused="frames of other numbers than the channels or the header have, joints outside a ROOT",
    ),
)
def read_bvh(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Forward kinematics: a position that is a channel stands in place of the offset."""
    blob = clean(read(path, max_bytes))
    motion = _MOTION.search(blob.data)
    if motion is None:
        raise blob.fault("HIERARCHY, then MOTION with Frames and Frame Time", "none", _FIX)
    skeleton = _skeleton(blob, motion.start())
    values = _values(blob, motion, sum(map(len, skeleton.channels)))
    frames = len(values)
    joints = len(skeleton.parents)
    pos = _positions(skeleton, values)
    tree = [(parent, joint) for joint, parent in enumerate(skeleton.parents) if parent >= 0]
    names = ", ".join(skeleton.names[:_SHOWN])
    if joints > _SHOWN:
        names += ", ..."
    seconds = motion[2].decode("latin-1")
    points = {
        "pos": pos.reshape(-1, 3),
        "frame": np.repeat(np.arange(frames), joints),
        "joint": np.tile(np.arange(joints), frames),
    }
    ends = over_time(np.array(tree, np.int64).reshape(-1, 2), joints, frames).T
    notes = (f"{joints} joints and tips: {names}", f"{frames} frames, {seconds} s apart")
    return Raw(blob, points, others=dict(zip(ENDS, ends, strict=True)), notes=notes, text=True)


def _skeleton(blob: Blob, end: int) -> _Skeleton:
    """The joints before the byte ``end``."""
    words = re.finditer(rb"\S+", blob.data[:end])
    skeleton = _Skeleton([], [], [], [])
    open_joints = [-1]
    for match in words:
        word = match[0].decode("latin-1").upper()
        try:
            if word in ("ROOT", "JOINT", "END"):
                if word == "ROOT":
                    open_joints = [-1]
                parent = open_joints[-1]
                if (parent < 0) != (word == "ROOT"):
                    raise ValueError("a joint outside a ROOT")
                name = next(words)[0].decode("utf-8", "replace")
                if word == "END":
                    name = f"{skeleton.names[parent]} tip"
                skeleton.names.append(name)
                skeleton.parents.append(parent)
                skeleton.offsets.append([0.0, 0.0, 0.0])
                skeleton.channels.append([])
            elif word == "{":
                open_joints.append(len(skeleton.names) - 1)
            elif word == "}":
                open_joints.pop()
            elif word == "OFFSET":
                skeleton.offsets[-1] = [float(next(words)[0]) for _ in range(3)]
            elif word == "CHANNELS":
                count = int(next(words)[0])
                skeleton.channels[-1] = [_channel(words) for _ in range(count)]
            elif word != "HIERARCHY":
                raise ValueError("an unknown word; names have no blanks")
        except (ValueError, IndexError, StopIteration) as error:
            got = f"{word[:40]}: {error or 'the end'}"
            raise blob.fault("a joint", got, _FIX, offset=match.start()) from None
    if not skeleton.names or len(open_joints) > 1:
        raise blob.fault("a ROOT whose braces are closed", "none", _FIX, offset=end)
    return skeleton


def _channel(words: Iterator[re.Match[bytes]]) -> tuple[int, bool]:
    """The next channel: an axis, and True for a rotation."""
    word = next(words)[0].decode("latin-1")
    match = _CHANNEL.fullmatch(word)
    if match is None:
        raise ValueError(f"a channel {word[:40]}, expected Xposition, Zrotation and the like")
    return "XYZ".index(match[1].upper()), match[2].lower() == "rotation"


def _values(blob: Blob, motion: re.Match[bytes], size: int) -> np.ndarray:
    """The channels of all frames (T, size)."""
    table = rows(blob, b" " * motion.end() + blob.data[motion.end() :])
    expected = f"{size} numbers, one for each channel of the joints"
    table.refuse(table.width != size, blob, expected, _FIX)
    count = len(table.width)
    if count != max(1, int(motion[1])):
        expected = f"1 or more frames, {int(motion[1])} as the header says"
        raise blob.fault(expected, f"{count}", "get the whole file", offset=motion.start())
    values = table.value.reshape(count, size)
    wild = np.flatnonzero(~np.isfinite(values).all(1))
    if len(wild):
        raise blob.fault("finite numbers", "infinity", _FIX, offset=table.offset(int(wild[0])))
    return values


def _positions(skeleton: _Skeleton, values: np.ndarray) -> np.ndarray:
    """Positions (T, J, 3) of joints from the channels (T, size)."""
    from scipy.spatial.transform import Rotation

    frames = len(values)
    pos = np.zeros((frames, len(skeleton.parents), 3))
    turns: list[Any] = []
    column = 0
    for joint, parent in enumerate(skeleton.parents):
        place = np.tile(np.array(skeleton.offsets[joint]), (frames, 1))
        turn = Rotation.identity(frames)
        for axis, is_turn in skeleton.channels[joint]:
            if is_turn:
                turn = turn * Rotation.from_euler("XYZ"[axis], values[:, [column]], degrees=True)
            else:
                place[:, axis] = values[:, column]
            column += 1
        if parent >= 0:
            place = pos[:, parent] + turns[parent].apply(place)
            turn = turns[parent] * turn
        pos[:, joint] = place
        turns.append(turn)
    return pos
