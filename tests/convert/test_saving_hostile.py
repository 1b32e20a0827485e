"""Files and data of strangers: each gets an error of ours, soon, and in little memory."""

import base64
import json
import random
import struct
import time

import pytest
import torch
from file_mutations import LARGEST, ON_BYTES
from safetensors.torch import save as save_tensors

import graphattn as ga
from graphattn.errors import LoaderError

MIXED = ga.from_edge_index([[5, 0, 1], [2, 3, 2]], num_nodes=7) | ga.graphs.sliding_window(7, 3)
SEEDS = [
    MIXED,
    ga.graphs.documents(torch.tensor([0, 0, 3, 1, 3])) - ga.graphs.self_loops(5),
    ga.PerHead((MIXED, ~MIXED)),
    [ga.graphs.sliding_window(..., 3) | ga.graphs.global_tokens(..., (0,)), MIXED],
    ga.graphs.Relations(near=MIXED, far=ga.graphs.causal(7)),
    ga.from_edge_index(torch.arange(200).reshape(2, 100), num_nodes=200),
]


def data(*nodes, **changes):
    return {"format": "graphattn", "version": 1, "nodes": list(nodes), **changes}


def call(name, *args, **options):
    return {"call": name, "args": list(args), "options": [list(pair) for pair in options.items()]}


def edges(index, num_nodes=3, **changes):
    plain = {"dtype": "int64", "shape": [2, len(index) // 2], "data": index}
    return {"edges": plain, "num_targets": num_nodes, "num_sources": num_nodes, **changes}


def numbers(data, shape, dtype="int64"):
    return {"tensor": {"dtype": dtype, "shape": shape, "data": data}}


FULL, A, B = call("full", 3), {"node": 0}, {"node": 1}
DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]
HOSTILE = {
    "nothing": None,
    "a list": [FULL],
    "no format": {"version": 1, "nodes": [FULL]},
    "another format": data(FULL, format="onnx"),
    "no version": {"format": "graphattn", "nodes": [FULL]},
    "a later version": data(FULL, version=2),
    "version of words": data(FULL, version="1"),
    "version true": data(FULL, version=True),
    "more keys": data(FULL, code="import os"),
    "no nodes": data(),
    "nodes of words": data(nodes="full"),
    "10^6 nodes": data(*[FULL] * 10**6),
    "an empty node": data({}),
    "a node of two kinds": data({**FULL, **edges([])}),
    "more keys in a node": data({**FULL, "shell": "rm"}),
    "no builder": data(call("eval", "1")),
    "a dunder": data(call("__class__", 3)),
    "a function of the package": data(call("from_rule", 3)),
    "a private method": data(FULL, call("_remember", A, "x")),
    "a property": data(FULL, call("edge_index", A)),
    "a method that is none of those": data(FULL, call("to", A, "cuda")),
    "a name of another kind": data(call(["full"], 3)),
    "a name that is a number": data(call(3, 3)),
    "signs of tensors": data(call("|", numbers([1], [1]), numbers([1], [1]))),
    "signs of numbers": data(call("-", 5, 3)),
    "one side": data(FULL, call("|", A)),
    "three sides": data(FULL, call("|", A, A, A)),
    "a sign with options": data(FULL, call("|", A, A, out=A)),
    "a method of a number": data(call("reverse", 3)),
    "no arguments": data({"call": "full"}),
    "arguments by name": data({"call": "full", "args": {"num_nodes": 3}}),
    "unknown options": data(call("full", 3, bogus=1)),
    "options twice": data({**FULL, "options": [["x", 1], ["x", 2]]}),
    "options of numbers": data({**FULL, "options": [[1, 1]]}),
    "too few arguments": data(call("sliding_window", 3)),
    "a later node": data(call("reverse", B), FULL),
    "itself": data(call("reverse", A)),
    "a node before the first": data(FULL, call("reverse", {"node": -1})),
    "a node true": data(FULL, FULL, call("reverse", {"node": True})),
    "NaN": data(call("grid_ball", [3, 3], float("nan"))),
    "NaN by name": data(call("grid_ball", [3, 3], {"float": "nan"})),
    "another float": data(call("grid_ball", [3, 3], {"float": "1e5"})),
    "an unknown argument": data(call("full", {"eval": "3"})),
    "an argument of two kinds": data(FULL, call("reverse", {"node": 0, "open": True})),
    "a Python object": data(call("full", object())),
    "a set": data(call("global_tokens", 3, {1, 2})),
    "open false": data(call("full", {"open": False})),
    "a builder that takes no open size": data(call("documents", {"open": True})),
    "an open size elsewhere": data(call("sliding_window", 3, {"open": True})),
    "heads of patterns": data(call("full", {"open": True}), {"per_head": [0]}),
    "heads of nothing": data({"per_head": []}),
    "heads of different sizes": data(FULL, call("full", 4), {"per_head": [0, 1]}),
    "heads of heads": data(FULL, {"per_head": [0]}, {"per_head": [1]}),
    "relations of one name": data(FULL, {"relations": [["a", 0], ["a", 0]]}),
    "a relation self": data(FULL, {"relations": [["self", 0]]}),
    "a list of lists": data(FULL, {"list": [0]}, {"list": [1]}),
    "a name of a number": data({**FULL, "name": 3}),
    "a node of no use": data(FULL, FULL),
    "a name of escapes": data({**FULL, "name": "\x1b[31mred"}),
    "a name of a million": data({**FULL, "name": "a" * 10**6}),
    "a device": data({**FULL, "device": "cuda:0"}),
    "edges outside": data(edges([0, 3])),
    "edges below": data(edges([0, -1])),
    "edges of floats": data({**edges([]), "edges": {"dtype": "float32", "shape": [2, 1], "data": [0.0, 1.0]}}),
    "edges of three rows": data({**edges([]), "edges": {"dtype": "int64", "shape": [3, 1], "data": [0, 1, 2]}}),
    "edges of one number": data({**edges([]), "edges": {"dtype": "int64", "shape": [], "data": [1]}}),
    "edges of no tensor": data({**edges([]), "edges": 0}),
    "sizes below 0": data(edges([], -1)),
    "sizes of floats": data(edges([], 3.0)),
    "too many pairs": data(edges([], 2**62)),
    "rule of a number": data(edges([], rule=1)),
    "a count that lies": data(call("documents", numbers([0, 1], [3]))),
    "a shape that lies": data(call("documents", numbers([0, 1], [2**40, 2**40]))),
    "a shape below 0": data(call("documents", numbers([0, 1], [-2, -1]))),
    "bytes that lie": data(call("documents", numbers("AAAA", [3]))),
    "no base64": data(call("documents", numbers("?!", [3]))),
    "a dtype of objects": data(call("documents", numbers([0], [1], "object"))),
    "numbers of words": data(call("documents", numbers(["0"], [1]))),
    "numbers out of range": data(call("documents", numbers([300], [1], "uint8"))),
    "numbers of 100 digits": data(call("documents", numbers([10**100], [1]))),
    "numbers cut off": data(call("documents", numbers([1.5], [1]))),
    "infinite numbers": data(call("grid_ball", numbers([1e300], [1], "float32"), 1)),
    "nested too deeply": data(call("full", DEEP)),
    "nested nodes": data(DEEP),
    "2^63 nodes": data(call("full", 2**63)),
    "a number of 6000 digits": data(call("full", 10**6000)),
    "2^62 nodes listed": data(call("sliding_window", 2**62, 3), call("relabel", A, [0])),
    "2^40 tokens": data(call("documents", lengths=[2**40])),
    "2^59 nodes by blocks": data(FULL, call("block_sparse", A, 2**62)),
    "2^63 global tokens": data(FULL, call("with_global_tokens", A, 2**63 - 1)),
    "hours of drawing": data(call("random_regular", 10**7, 9)),
    "hours of hops": data(edges([0, 1, 1, 2]), call("k_hop", A, 10**9)),
    "hours of steps": data(call("circulant", 3 * 10**5, [1]), call("k_hop", A, 10**6)),
    "hours of products": data(
        call("erdos_renyi", 10**4, 0.5, listed=False), call("strided", 10**4, 3), call("@", A, B)
    ),
    "doubled 30 times": data(FULL, *[call("|", {"node": i}, {"node": i}) for i in range(30)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_is_refused_soon(name):
    start = time.process_time()
    with pytest.raises(LoaderError):
        ga.convert.graph_from_dict(HOSTILE[name], max_bytes=1 << 24)
    assert time.process_time() - start < 30  # 5 s on a quiet core


def test_what_takes_too_long_is_refused_unless_it_is_meant():
    tokens = data(call("documents", lengths=[10**4] * 10))
    with pytest.raises(LoaderError, match=r"computes more than .* bytes of numbers.*larger max_bytes"):
        ga.convert.graph_from_dict(tokens, max_bytes=1 << 16)
    assert ga.convert.graph_from_dict(tokens).num_nodes == 10**5
    with pytest.raises(LoaderError, match="computes more than"):
        ga.convert.graph_from_dict(
            data(*[call("documents", lengths=[10**4])] * 100, {"list": list(range(100))}), max_bytes=1 << 22
        )


def test_a_later_version_is_named():
    with pytest.raises(LoaderError, match=r"data: expected version 1, got 7\. Try: upgrade graphattn"):
        ga.convert.graph_from_dict(data(FULL, version=7))


def test_the_message_says_where():
    with pytest.raises(LoaderError, match=r"data, node 1, prefix: prefix must be at most num_nodes, got prefix=9 of 3"):
        ga.convert.graph_from_dict(data(FULL, call("prefix", 3, 9), {"list": [0, 1]}))


def safetensors(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


TEXT = json.dumps(json.dumps(data(edges([0, 1])) | {"nodes": [{**edges([]), "edges": 0}]}))
META = b'{"__metadata__": {"graphattn": ' + TEXT.encode() + b"}"
HOSTILE_FILES = {
    "empty.json": b"",
    "garbage.json": bytes(range(256)),
    "truncated.json": json.dumps(data(FULL)).encode()[:-3],
    "words after.json": json.dumps(data(FULL)).encode() + b" code",
    "pickle.json": b"\x80\x04K\x01.",
    "zip.json": b"PK\x03\x04" + bytes(30),
    "deep.json": b"[" * 10**6,
    "deep data.json": b'{"format": "graphattn", "version": 1, "nodes": ' + b"[" * 300 + b"]" * 300 + b"}",
    "nan.json": json.dumps(data(call("grid_ball", [3, 3], float("nan")))).encode(),
    "digits.json": b'{"format": "graphattn", "version": ' + b"1" * 10**5 + b', "nodes": []}',
    "entries.json": json.dumps(data(*[{"per_head": [0]}] * 10**5)).encode(),
    "surrogates.json": b'{"format": "graphattn", "version": 1, "nodes": [{"call": "\\ud800", "args": []}]}',
    "short.safetensors": b"\x08",
    "no header.safetensors": bytes(8),
    "huge header.safetensors": struct.pack("<Q", 2**63) + b"{}",
    "header beyond the file.safetensors": struct.pack("<Q", 100) + b"{}",
    "header of 9 MB.safetensors": safetensors(b"{}" + b" " * (9 << 20)),
    "no JSON.safetensors": safetensors(b"{nodes}"),
    "others.safetensors": save_tensors({"weight": torch.ones(3)}),
    "metadata null.safetensors": safetensors(b'{"__metadata__": null}'),
    "metadata of numbers.safetensors": safetensors(b'{"__metadata__": {"graphattn": 3}}'),
    "no tensor.safetensors": safetensors(META + b"}"),
    "truncated.safetensors": safetensors(
        META + b', "0": {"dtype": "I64", "shape": [2, 1], "data_offsets": [0, 16]}}', bytes(8)
    ),
    "overlapping.safetensors": safetensors(
        META
        + b', "0": {"dtype": "I64", "shape": [2, 1], "data_offsets": [0, 16]}'
        + b', "1": {"dtype": "I64", "shape": [2, 1], "data_offsets": [8, 24]}}',
        bytes(24),
    ),
    "lying shape.safetensors": safetensors(
        META + b', "0": {"dtype": "I64", "shape": [2, 99], "data_offsets": [0, 16]}}', bytes(16)
    ),
    "floats.safetensors": safetensors(
        META + b', "0": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}}', bytes(8)
    ),
    "tensors that nobody names.safetensors": save_tensors(
        {"0": torch.zeros(2, 1), "2": torch.ones(1)}, {"graphattn": json.dumps(data(FULL))}
    ),
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_hostile_files_are_refused_soon(name, tmp_path):
    (tmp_path / name).write_bytes(HOSTILE_FILES[name])
    start = time.process_time()
    with pytest.raises(LoaderError):
        ga.load(tmp_path / name)
    assert time.process_time() - start < 30  # 5 s on a quiet core


def test_a_file_larger_than_asked_for_is_not_read(tmp_path):
    ga.save(MIXED, tmp_path / "graph.json")
    with pytest.raises(LoaderError, match="expected 1 to 100 bytes"):
        ga.load(tmp_path / "graph.json", max_bytes=100)


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_mutated_files_give_a_graph_or_our_error(ending, tmp_path):
    draw, path = random.Random(0), tmp_path / f"graph.{ending}"
    seeds = []
    for value in SEEDS:
        ga.save(value, path)
        seeds.append(path.read_bytes())
    refused = 0
    for _ in range(150):
        path.write_bytes(draw.choice(ON_BYTES)(draw.choice(seeds), draw)[:LARGEST] or b"\0")
        try:
            ga.load(path, max_bytes=1 << 20)
        except LoaderError:
            refused += 1
    assert refused > 80


def test_base64_of_other_numbers_is_another_graph():
    plain = ga.convert.graph_to_dict(SEEDS[-1])
    index = plain["nodes"][0]["edges"]
    assert index["dtype"] == "int16"
    index["data"] = base64.b64encode(bytes(400)).decode()
    back = ga.convert.graph_from_dict(plain)
    assert back.has_repeated_edges
    assert back.num_edges == 100
