"""What a run's folder holds: read by one schema, whole, of this run, and written by one process at
a time.
"""

import html
import json
import os
import re
import sys

import pytest
import safetensors.torch
import torch
from shape_folders import labelled_points, two_classes

import graphattn as ga
from graphattn.errors import GraphAttnError, LoaderError, OptionError
from graphattn.training import Run

PLAIN = {"model": "perceptron", "epochs": 1, "control": False}
WRONG = [None, True, -1, 2**64, 1e400, "", "x", "\ud800", [], [[1]], [None], {}, {"a": 1}]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a perceptron, without its page."""
    above = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphattn.training.fit.save_report", lambda *args: None)
        ga.training.train(two_classes(above / "shapes"), above / "run", **PLAIN)
    return above / "run"


@pytest.fixture
def copy(run, tmp_path):
    """A folder with the same run."""
    os.makedirs(tmp_path / "run")
    for path in run.iterdir():
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "run"


def keys(told, above=()):
    """The path of every key, and of the first member of each list."""
    for key in told if isinstance(told, dict) else range(min(1, len(told))):
        yield (*above, key)
        if isinstance(told[key], dict | list):
            yield from keys(told[key], (*above, key))


def test_an_edited_run_is_refused_by_the_name_of_the_key_or_read(copy):
    text = (copy / "run.json").read_text("utf-8")
    refused = []
    for number, path in enumerate(keys(json.loads(text))):
        for value in WRONG[number % 3 :: 3]:
            told = json.loads(text)
            inner = told
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            (copy / "run.json").write_text(json.dumps(told), encoding="utf-8")
            try:
                Run.load(copy).new_model()
            except GraphAttnError as error:
                refused.append((path, str(error)))
    assert len(refused) > 70
    for path, message in refused:
        names = [re.escape(key) for key in path if isinstance(key, str)]
        assert re.search("|".join([*names, "Infinity"]), message), (path, message)


@pytest.mark.parametrize(
    "change", [lambda told: told.pop("seed", told.pop("said")), lambda told: told.update(more=1)]
)
def test_a_key_that_is_missing_or_too_many_is_named(change, copy):
    told = json.loads((copy / "run.json").read_text("utf-8"))
    change(told)
    (copy / "run.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(LoaderError, match=r"run.json: .*(said is missing|more is no key)"):
        Run.load(copy)
    (copy / "run.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(LoaderError, match=r"run.json: .*RecursionError"):
        Run.load(copy)


def test_no_points_are_drawn_where_each_has_a_label(tmp_path, no_page):
    folder = labelled_points(tmp_path / "parts")
    with pytest.raises(OptionError, match="sample must be 0 where each point has a label, got 3"):
        ga.training.train(folder, tmp_path / "run", **PLAIN, sample=3)
    ga.training.train(folder, tmp_path / "run", **PLAIN)
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text("utf-8").replace('"sample": 0', '"sample": 3'), encoding="utf-8")
    with pytest.raises(LoaderError, match="sample must be 0 where each point has a label, got 3"):
        Run.load(tmp_path / "run")


def edited(path, change):
    """Change the tensors of a file, and keep what it says of them."""
    content = path.read_bytes()
    said = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    tensors = safetensors.torch.load(content)
    change(tensors)
    path.write_bytes(safetensors.torch.save(tensors, said))


def swap(tensors):
    one, other = (name for name in tensors if tensors[name].shape == (64,) and "body" in name)
    tensors[one], tensors[other] = tensors[other], tensors[one]


CHANGES = {
    "NaN": lambda tensors: tensors["head.0.bias"].fill_(torch.nan),
    "missing": lambda tensors: tensors.pop("head.0.bias"),
    "shape": lambda tensors: tensors.update({"head.0.bias": torch.zeros(3)}),
    "swapped": swap,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_state_is_refused(change, copy):
    edited(copy / "model.safetensors", CHANGES[change])
    with pytest.raises(LoaderError, match=r"model.safetensors: .*tensors that have changed since"):
        ga.training.evaluate(copy)


def test_a_state_of_another_run_is_refused(copy, tmp_path, no_page):
    folder = Run.load(copy).folder
    ga.training.train(folder, tmp_path / "other", **PLAIN, seed=1)
    for name in ("model", "checkpoint"):
        (copy / f"{name}.safetensors").write_bytes(
            (tmp_path / "other" / f"{name}.safetensors").read_bytes()
        )
    with pytest.raises(LoaderError, match=r"model.safetensors: expected a state of this run"):
        ga.training.evaluate(copy)
    with pytest.raises(LoaderError, match=r"checkpoint.safetensors: expected a state of this run"):
        ga.training.resume(copy, epochs=9)


def test_one_process_trains_a_run_and_clears_what_a_killed_one_left(copy, no_page):
    name = f".{'0' * 16}.tmp"
    left = [copy / folder / name for folder in ("", "forest", "fold1", "fold4")]
    others = [copy / ".notes.tmp", copy / "thesis" / ".0.tmp", copy / "thesis" / name]
    (copy / ".cache.tmp").mkdir()
    for file in (*left, *others):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half")
    with Run.load(copy).alone():
        assert not any(file.exists() for file in left)
        assert all(file.exists() for file in others)  # files of others are never removed
        with pytest.raises(OptionError, match="is trained by another process"):
            ga.training.resume(copy)
    ga.training.resume(copy)


def test_classes_that_were_renamed_are_refused(tmp_path, no_page):
    folder = tmp_path / "shapes"
    two_classes(folder)
    lines = [
        f"{path.relative_to(folder)},{path.parent.name}" for path in sorted(folder.rglob("*.ply"))
    ]
    (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    ga.training.train(folder, tmp_path / "run", **PLAIN)
    (folder / "labels.csv").write_text("\n".join(lines).replace(",flat", ",even"), encoding="utf-8")
    with pytest.raises(LoaderError, match="expected a class of flat, tall, got 'even'"):
        ga.training.resume(tmp_path / "run")


def test_a_large_label_asks_for_no_large_table(tmp_path):
    folder = labelled_points(tmp_path / "parts")
    shape = ga.load(folder / "0.ply")
    ga.save(
        ga.shapes.Shape(pos=shape.pos, label=torch.full((len(shape.pos),), 65_535)),
        folder / "0.ply",
    )
    with pytest.raises(
        OptionError, match=r"classes must be at most 1,024, got 65,536; -1 is no label"
    ):
        ga.training.train(folder, tmp_path / "run", **PLAIN)


def test_shapes_without_labels_are_neither_measured_nor_decide(tmp_path, no_page):
    folder = tmp_path / "parts"
    folder.mkdir()
    labelled_points(folder / "train")
    for part, number in (("val", 0), ("test", 1), ("test", 2)):
        (folder / part).mkdir(exist_ok=True)
        shape = ga.load(folder / "train" / f"{number}.ply")
        unknown = torch.full((len(shape.pos),), -1)
        ga.save(ga.shapes.Shape(pos=shape.pos, label=unknown), folder / part / f"{number}.ply")
    result = ga.training.train(folder, tmp_path / "run", **PLAIN)
    assert result.part == "train"
    assert "3 without labels left out" in Run.load(tmp_path / "run").said
    assert "val_loss" not in json.loads((tmp_path / "run" / "log.jsonl").read_text("utf-8"))


def test_numbers_as_large_as_float32_has_are_measured_and_written(tmp_path, no_page):
    folder = two_classes(tmp_path / "shapes")
    files = sorted(folder.rglob("*.ply"))
    lines = [
        f"{path.relative_to(folder)},{(-1) ** place * 3.3e38}" for place, path in enumerate(files)
    ]
    (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    result = ga.training.train(folder, tmp_path / "run", task="regress", **PLAIN)
    assert 1e38 < result.scores["rmse"] < 1e40
    told = (tmp_path / "run" / "result.json").read_text("utf-8") + (
        tmp_path / "run" / "log.jsonl"
    ).read_text("utf-8")
    assert "Infinity" not in told
    assert "NaN" not in told


def test_a_file_whose_name_is_no_utf8_is_predicted(run, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.ply")
    path.write_bytes((Run.load(run).folder / "flat" / "0.ply").read_bytes())
    (line,) = ga.training.predict(run, [path], tmp_path / "out")
    assert ga.load(line["ply"]).prediction.numel()
    assert "caf\\udce9.ply" in (tmp_path / "out" / "predictions.csv").read_text("utf-8")


def test_a_page_shows_hostile_names_as_they_are(tmp_path):
    folder, names = (
        tmp_path / os.fsdecode("\u202e<b>".encode()),
        ["<img src=x onerror=alert(1)>", "</script><script>", "\"'&$title", "w" * 300],
    )
    folder.mkdir()
    for number in range(16):
        shape = ga.shapes.Shape(pos=torch.rand(9, 3))
        ga.save(shape, folder / f"{number}<script>.ply")
    lines = [
        f'{number}<script>.ply,"{names[number % 4].replace(chr(34), 2 * chr(34))}"'
        for number in range(16)
    ]
    (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    ga.training.train(folder, tmp_path / "run", **PLAIN)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "<img src=x" not in page
    if sys.getfilesystemencoding() == "utf-8":  # else the name is shown as bytes
        assert "<title>\u2068\u202e&lt;b&gt;\u2069: 4 held-out shapes classified</title>" in page
    assert all(html.escape(name) in page for name in names)
    shown = set(re.findall(r"<figcaption><b>\u2068(\d+&lt;script&gt;\.ply)\u2069</b>", page))
    assert len(shown) == 4
