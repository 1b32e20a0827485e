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

MIXED = ga.from_edge_index([[5, 0, 1], [2, 3, 2]], num_nodes=7) | ga.graphs.sliding_window(
    7, 3, causal=True
)
SEEDS = [
    MIXED,
    ga.graphs.documents(torch.tensor([0, 0, 3, 1, 3]), causal=False) - ga.graphs.self_loops(5),
    ga.PerHead((MIXED, ~MIXED)),
    [ga.graphs.sliding_window(..., 3, causal=True) | ga.graphs.global_tokens(..., (0,)), MIXED],
    ga.graphs.Relations(near=MIXED, far=ga.graphs.causal(7)),
    ga.from_edge_index(torch.arange(200).reshape(2, 100), num_nodes=200),
]


def data(*graphs, value=0, **changes):
    return {"format": "graphattn", "version": 3, "graphs": list(graphs), "value": value, **changes}


def numbers(data, shape, dtype="int64"):
    return {"dtype": dtype, "shape": shape, "data": data}


def edges(index, num_nodes=3, **changes):
    return {
        "edges": numbers(index, [2, len(index) // 2]),
        "sizes": [num_nodes, num_nodes],
        "name": "mine",
        **changes,
    }


def runs(count, lo, hi, num_sources=3, **changes):
    parts = [numbers(part, [len(part)]) for part in (count, lo, hi)]
    return {"runs": parts, "sizes": [len(count), num_sources], "name": "mine", **changes}


def pattern(text, *held):
    return {"expression": text, "held": list(held)}


EDGES, RUNS, OPEN = edges([0, 1]), runs([1, 1, 1], [0, 0, 1], [1, 2, 3]), pattern("causal(...)")
DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]
HOSTILE = {
    "nothing": None,
    "a list": [RUNS],
    "no format": {"version": 3, "graphs": [RUNS], "value": 0},
    "another format": data(RUNS, format="onnx"),
    "no version": {"format": "graphattn", "graphs": [RUNS], "value": 0},
    "an earlier version": data(RUNS, version=1),
    "a later version": data(RUNS, version=4),
    "version of words": data(RUNS, version="2"),
    "version true": data(RUNS, version=True),
    "version of 6000 digits": data(RUNS, version=10**6000),
    "more keys": data(RUNS, code="import os"),
    "no graphs": data(),
    "graphs of words": data(graphs="causal(3)"),
    "10^6 graphs": data(*[RUNS] * 10**6),
    "an empty graph": data({}),
    "a graph of two kinds": data({**RUNS, **EDGES}),
    "more keys in a graph": data({**EDGES, "shell": "rm"}),
    "no such graph": data(RUNS, value=1),
    "a graph before the first": data(RUNS, value=-1),
    "a value of words": data(RUNS, value="0"),
    "a value of two kinds": data(RUNS, value={"per_head": [0], "layers": [0]}),
    "no builder": data(pattern("eval(..., '1')")),
    "an import": data(pattern("__import__('os').system(...)")),
    "a dunder": data(pattern("causal(...).__class__(3)")),
    "a function of the package": data(pattern("from_rule(...)")),
    "a private method": data(pattern("causal(...)._remember('x')")),
    "a method that is none of those": data(pattern("causal(...).to('cuda')")),
    "a name that nothing holds": data(pattern("causal(...) | _0")),
    "code": data(pattern("[causal(...) for x in (1,)]")),
    "unpacked": data(pattern("causal(*(...,))")),
    "options twice": data(pattern("causal(..., align='end', align='end')")),
    "no call": data(pattern("...")),
    "no text": data(pattern(3)),
    "no open size": data(pattern("causal(3)")),
    "no builder that takes an open size": data(pattern("disjoint_union((3, ...))")),
    "a long text": data(pattern("causal(..., " + "1" * 70_000 + ")")),
    "a deep text": data(pattern("~" * 60_000 + "causal(...)")),
    "brackets": data(pattern("(" * 60_000)),
    "300 calls": data(pattern("causal(...)" + " | causal(...)" * 299)),
    "many signs": data(pattern("causal(...)" + " | causal(...)" * 2000)),
    "many lines": data(pattern("causal(..., (" + "1,\n" * 20_000 + "), x)")),
    "600 times not": data(pattern("~" * 600 + "causal(...)")),
    "a method alone": data(pattern("reverse()")),
    "a method of nothing": data(pattern("reverse(...)")),
    "a method of a word": data(pattern("'x'.reverse(...)")),
    "a size as a graph": data(pattern("causal(...) | 3")),
    "open sizes as graphs": data(pattern("... | ...")),
    "60,000 digits": data(pattern("causal(..., 0x" + "f" * 60_000 + ")")),
    "surrogates": data(pattern("causal(..., '\ud800\udc00', \udcff)")),
    "a NUL": data(pattern("causal(...)\0")),
    "held code": data(pattern("causal(...) | _0", {"call": "full"})),
    "held words": data(pattern("documents(..., _0, causal=False)", "rm")),
    "held patterns": data(OPEN, pattern("causal(...) | _0", {"graph": 0}), value=1),
    "itself": data(pattern("causal(...) | _0", {"graph": 0})),
    "an array of bfloat16": data(
        pattern("documents(..., _0, causal=False)", {"array": numbers([0], [1], "bfloat16")})
    ),
    "an open size in a graph": data({**RUNS, "written": OPEN}),
    "an expression of edges": data({**EDGES, "written": pattern("causal(3)")}),
    "an expression alone": data({**RUNS, "written": {"expression": "causal(3)"}}),
    "heads of patterns": data(OPEN, value={"per_head": [0]}),
    "heads of nothing": data(RUNS, value={"per_head": []}),
    "heads of different sizes": data(RUNS, edges([], 4), value={"per_head": [0, 1]}),
    "heads of heads": data(RUNS, value={"per_head": [{"per_head": [0]}]}),
    "relations of one name": data(RUNS, value={"relations": [["a", 0], ["a", 0]]}),
    "a relation self": data(RUNS, value={"relations": [["self", 0]]}),
    "relations of no names": data(RUNS, value={"relations": [0]}),
    "no layers": data(RUNS, value={"layers": []}),
    "layers of layers": data(RUNS, value={"layers": [{"layers": [0]}]}),
    "layers of relations": data(RUNS, value={"layers": [{"relations": [["a", 0]]}]}),
    "a name of a number": data({**RUNS, "name": 3}),
    "a name of escapes": data({**RUNS, "name": "\x1b[31mred"}),
    "a name of a million": data({**RUNS, "name": "a" * 10**6}),
    "a device": data({**RUNS, "device": "cuda:0"}),
    "edges outside": data(edges([0, 3])),
    "edges below": data(edges([0, -1])),
    "edges of floats": data({**EDGES, "edges": numbers([0.0, 1.0], [2, 1], "float32")}),
    "edges of three rows": data({**EDGES, "edges": numbers([0, 1, 2], [3, 1])}),
    "edges of one number": data({**EDGES, "edges": numbers([1], [])}),
    "edges of no tensor": data({**EDGES, "edges": 0}),
    "one size": data({**EDGES, "sizes": [3]}),
    "sizes below 0": data(edges([], -1)),
    "sizes of floats": data(edges([], 3.0)),
    "too many pairs": data(edges([], 2**62)),
    "too many pairs of runs": data(runs([0, 0], [], [], 2**62)),
    "2^63 sources": data(runs([0], [], [], 2**63)),
    "two tensors of runs": data({**RUNS, "runs": RUNS["runs"][:2]}),
    "runs of floats": data({**RUNS, "runs": [numbers([1.0] * 3, [3], "float32")] * 3}),
    "runs as a table": data({**RUNS, "runs": [numbers([1] * 3, [3, 1])] * 3}),
    "runs of fewer targets": data({**RUNS, "sizes": [4, 3]}),
    "counts below 0": data(runs([2, -1, 0], [0], [1])),
    "counts that lie": data(runs([1, 1, 0], [0], [1])),
    "counts of 2^62": data(runs([2**62, 0, 0], [0], [1])),
    "ends that lack": data(runs([1, 1, 0], [0, 0], [1])),
    "runs outside": data(runs([1, 0, 0], [0], [4])),
    "runs below": data(runs([1, 0, 0], [-1], [2])),
    "runs backwards": data(runs([1, 0, 0], [2], [1])),
    "empty runs": data(runs([1, 0, 0], [1], [1])),
    "runs that overlap": data(runs([2, 0, 0], [0, 1], [2, 3])),
    "runs that touch": data(runs([2, 0, 0], [0, 1], [1, 2])),
    "runs that descend": data(runs([2, 0, 0], [2, 0], [3, 1])),
    "a count that lies": data({**EDGES, "edges": numbers([0, 1], [2, 3])}),
    "a shape that lies": data({**EDGES, "edges": numbers([0, 1], [2**40, 2**40])}),
    "a shape below 0": data({**EDGES, "edges": numbers([0, 1], [-2, -1])}),
    "bytes that lie": data({**EDGES, "edges": numbers("AAAA", [2, 1])}),
    "no base64": data({**EDGES, "edges": numbers("?!", [2, 1])}),
    "a dtype of objects": data({**EDGES, "edges": numbers([0, 1], [2, 1], "object")}),
    "numbers of words": data({**EDGES, "edges": numbers(["0", "1"], [2, 1])}),
    "numbers out of range": data({**EDGES, "edges": numbers([300, 1], [2, 1], "uint8")}),
    "numbers of 100 digits": data({**EDGES, "edges": numbers([10**100, 1], [2, 1])}),
    "numbers cut off": data({**EDGES, "edges": numbers([1.5, 1], [2, 1])}),
    "infinite numbers": data(
        pattern("causal(..., _0)", {"tensor": numbers([1e300], [1], "float32")})
    ),
    "nested too deeply": data(pattern("causal(...)", DEEP)),
    "nested graphs": data(DEEP),
    "nested values": data(RUNS, value=DEEP),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_is_refused_soon(name):
    start = time.process_time()
    with pytest.raises(LoaderError):
        ga.convert.graph_from_dict(HOSTILE[name])
    assert time.process_time() - start < 10


def test_a_pattern_of_a_stranger_is_not_built_when_it_is_read():
    for text in ("random_regular(10**7, 9) | causal(...)", "causal(...).k_hop(1000000000)"):
        assert ga.convert.graph_from_dict(
            data(pattern(text.replace("10**7", "10000000")))
        ).expression.is_open


def test_other_versions_are_named():
    with pytest.raises(
        LoaderError, match=r"data: expected version 2 to 3, got 7\. Try: upgrade graphattn"
    ):
        ga.convert.graph_from_dict(data(RUNS, version=7))
    with pytest.raises(
        LoaderError,
        match=r"data: expected version 2 to 3, got 1\. Try: upgrade graphattn, or save the graph again.",
    ):
        ga.convert.graph_from_dict(data(RUNS, version=1))


def test_a_builder_with_a_new_name_is_named():
    with pytest.raises(LoaderError, match=r"no builder is called fixed; it is .*sparse_fixed"):
        ga.convert.graph_from_dict(data(pattern("fixed(..., 2)")))
    with pytest.raises(LoaderError, match=r"no builder is called newest\. Try: upgrade graphattn"):
        ga.convert.graph_from_dict(data(pattern("newest(..., 2)")))


def test_the_message_says_where():
    with pytest.raises(
        LoaderError, match=r"data, graph 1, edges: edge 0: target 3 is outside \[0, 3\)"
    ):
        ga.convert.graph_from_dict(data(RUNS, edges([0, 3])))
    with pytest.raises(
        LoaderError, match=r"data, graph 0, expression: eval\(...\): no builder is called eval"
    ):
        ga.convert.graph_from_dict(data(pattern("eval(...)")))


def safetensors(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


TEXT = json.dumps(json.dumps(data({**EDGES, "edges": 0})))
META = b'{"__metadata__": {"graphattn": ' + TEXT.encode() + b"}"
HOSTILE_FILES = {
    "empty.json": b"",
    "garbage.json": bytes(range(256)),
    "truncated.json": json.dumps(data(RUNS)).encode()[:-3],
    "words after.json": json.dumps(data(RUNS)).encode() + b" code",
    "pickle.json": b"\x80\x04K\x01.",
    "zip.json": b"PK\x03\x04" + bytes(30),
    "deep.json": b"[" * 10**6,
    "deep data.json": b'{"format": "graphattn", "version": 3, "graphs": '
    + b"[" * 300
    + b"]" * 300
    + b"}",
    "nan.json": json.dumps(data(RUNS, value=float("nan"))).encode(),
    "digits.json": b'{"format": "graphattn", "version": ' + b"1" * 10**5 + b', "graphs": []}',
    "entries.json": json.dumps(data(*[RUNS] * 10**5)).encode(),
    "surrogates.json": json.dumps(data(pattern("\ud800"))).encode(),
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
        {"0": torch.zeros(2, 1), "2": torch.ones(1)}, {"graphattn": json.dumps(data(RUNS))}
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "entries.json" else name
        for name in HOSTILE_FILES
    ],
)
def test_hostile_files_are_refused_soon(name, tmp_path):
    (tmp_path / name).write_bytes(HOSTILE_FILES[name])
    start = time.process_time()
    with pytest.raises(LoaderError):
        ga.load(tmp_path / name)
    assert time.process_time() - start < 30  # 5 s on a quiet core


def test_a_file_larger_than_asked_for_is_not_read(tmp_path):
    ga.save(MIXED, tmp_path / "graph.json")
    with pytest.raises(LoaderError, match="expected at most 100 bytes"):
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
    index = plain["graphs"][0]["edges"]
    assert index["dtype"] == "int16"
    index["data"] = base64.b64encode(bytes(400)).decode()
    back = ga.convert.graph_from_dict(plain)
    assert back.has_repeated_edges
    assert back.num_edges == 100
