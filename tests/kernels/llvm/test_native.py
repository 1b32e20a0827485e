"""Machine code for CPUs that are not here: it compiles, calls no library, and fits the registers."""

import platform
import re

import fresh_python
import llvmlite.binding as llvm
import pytest
import torch

from graphattn.kernels.additive import cpu as additive_native
from graphattn.kernels.arrays import Kinds
from graphattn.kernels.blocks import cpu as blocks_native
from graphattn.kernels.blocks import parts
from graphattn.kernels.llvm import native, node_rows
from graphattn.kernels.llvm.native import Kernel, Target
from graphattn.kernels.pairs import cpu as pairs_native
from graphattn.kernels.softmax import cpu as edges_native
from graphattn.plans.pieces import VECTORS

AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2"
TARGETS = {
    "avx512": Target("x86_64-unknown-linux-gnu", "skylake-avx512", f"{AVX2},+avx512f"),
    "avx2": Target("x86_64-unknown-linux-gnu", "haswell", AVX2),
    "windows": Target("x86_64-pc-windows-msvc", "haswell", AVX2),
    "neon": Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon"),
    "sve": Target("aarch64-unknown-linux-gnu", "neoverse-v1", "+neon,+sve"),
    "apple": Target("arm64-apple-macosx", "apple-m1", "+neon"),
}
FUNCTIONS = (
    node_rows.products,
    node_rows.sum_near,
    node_rows.sum_far,
    node_rows.sum_over_groups,
    node_rows.stored,
)
PARTS = (
    parts.pack_targets,
    parts.unpack_targets,
    parts.pack_rows,
    parts.unpack_rows,
    parts.scores,
    parts.weigh,
    parts.sums,
    parts.slopes,
    parts.table_sums,
    parts.outer,
)
KERNELS = [
    kernel
    for module in (edges_native, pairs_native, additive_native, blocks_native)
    for kernel in vars(module).values()
    if isinstance(kernel, type) and issubclass(kernel, Kernel) and not kernel.__subclasses__()
]


@pytest.fixture(scope="module", autouse=True)
def _all_cpus():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def assembly(source, target):
    machine = target.machine()
    return machine.emit_assembly(native.optimised(source, machine))


def called(text):
    """Names of the functions that some code calls, also by their address in a register."""
    # constants of Windows have an @
    call = r"^\s+(?:callq?|bl|movabsq?)\s+\$?([A-Za-z_]\w*)\b(?!@)"
    return set(re.findall(call, text, re.MULTILINE))


def test_there_are_as_many_kernels_as_there_should_be():
    assert {kernel.__name__ for kernel in KERNELS} == {
        *("Forward", "BackwardTargets", "EdgeSums", "EdgeProducts"),
        *("EdgeSoftmax", "EdgeSoftmaxBackward", "Scores", "ToTargets", "ToSources"),
        *("BlockForward", "BlockBackward", "BlockGradients"),
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "eights"),
    [
        (torch.float64, 4),
        (torch.bfloat16, 1),
        *(
            pytest.param(dtype, eights, marks=pytest.mark.slow)
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
            for eights in (1, 5, 16)
        ),
    ],
)
def test_rows_of_nodes_call_no_library(name, dtype, eights):
    kinds = Kinds(torch.promote_types(dtype, torch.float32), torch.int32, dtype, eights)
    for function in FUNCTIONS:
        text = assembly(native.function_ir(function, kinds, TARGETS[name]), TARGETS[name])
        assert called(text) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_parts_of_blocks_call_no_library(name, dtype):
    sums = torch.promote_types(dtype, torch.float32)
    for part in PARTS:
        for vectors, masked in ((1, True), (3, False)):
            kinds = parts.Part(sums, dtype, vectors, masked, biased=True)
            text = assembly(native.function_ir(part, kinds, TARGETS[name]), TARGETS[name])
            assert called(text) == set()


@pytest.mark.parametrize("name", ["avx2", "avx512", "neon"])
def test_sums_of_a_tile_of_a_block_stay_in_registers(name):
    """The innermost loop, of as many multiplications as there are sums, stores nothing."""
    target = TARGETS[name]
    source = native.function_ir(parts.scores, parts.Part(torch.float32, torch.float32), target)
    loops = re.split(r"^\.?L\w+:.*$", assembly(source, target), flags=re.MULTILINE)
    rows = parts.Shape.of(target.vector_bytes, target.registers, 4).rows
    multiplications = [len(re.findall(r"\s(?:vfmadd|fmla)", loop)) for loop in loops]
    assert max(multiplications) == rows * VECTORS
    inner = loops[multiplications.index(max(multiplications))]
    inner = re.split(r"\n\s+(?:j|b\.)", inner)[0]  # up to the jump back
    assert not re.findall(r"\(%rsp\)|\[sp", inner)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_call_no_library(name, dtype, kernel):
    kinds = Kinds(dtype, torch.int64, dtype, 0)
    text = assembly(native.kernel_ir(kernel, kinds, TARGETS[name]), TARGETS[name])
    assert called(text) == set()


@pytest.mark.parametrize(("name", "register"), [("avx2", "ymm"), ("avx512", "zmm"), ("neon", "v")])
def test_vectors_are_those_of_the_cpu(name, register):
    kinds = Kinds(torch.float32, torch.int32, torch.float32, 4)
    source = native.function_ir(node_rows.sum_near, kinds, TARGETS[name])
    text = assembly(source, TARGETS[name])
    loop = [line for line in text.splitlines() if "fma" in line or "fmla" in line]
    assert loop
    assert all(re.search(rf"\b{register}\d+", line.replace("%", " ")) for line in loop)


OTHER_CPU = """
import torch, graphattn as ga
from graphattn.kernels.llvm.native import Target
host = Target.of_host()
other = Target(host.triple, {cpu!r}, {features!r})
Target.of_host = classmethod(lambda cls: other)
print(other.vector_bytes)
graph = ga.graphs.sliding_window(61, 7, causal=False) | ga.graphs.global_tokens(61, [3])
for dtype, D in ((torch.float64, 24), (torch.float32, 32), (torch.float16, 5)):
    if not {halves} and dtype == torch.float16:
        continue
    given = [torch.randn(61, h, D, dtype=dtype, requires_grad=True) for h in (6, 3, 3)]
    bias = torch.randn(graph.num_edges, 6, dtype=dtype)
    for options in ({{"score_bias": bias, "softcap": 3.0}}, {{"softcap": 3.0}}):
        name = "edges" if "score_bias" in options else "tiles"
        out = [ga.attention(*given, graph, **options, return_lse=True, backend=name)
               for name in (name, "message_passing")]
        grads = [torch.autograd.grad(x.output.sum() + x.lse.sum(), given) for x in out]
        for x, y in zip((*out[0], *grads[0]), (*out[1], *grads[1])):
            if x is not None:
                error = (x - y).abs().max()
                assert error < {{8: 1e-12, 4: 2e-5, 2: 2e-1}}[dtype.itemsize], (dtype, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an x86 alone has these")
@pytest.mark.parametrize(
    ("cpu", "features", "size"), [("haswell", AVX2, "32"), ("nehalem", "+sse4.1,+sse4.2", "16")]
)
def test_vectors_of_any_size_give_the_same_to_rounding(cpu, features, size):
    code = OTHER_CPU.format(cpu=cpu, features=features, halves=cpu == "haswell")
    assert fresh_python.run(code, expect=0).stdout.split() == [size]


def test_a_machine_that_has_no_features_to_report_has_vectors_of_16_bytes(monkeypatch):
    def fail():
        raise RuntimeError("unknown")

    monkeypatch.setattr(llvm, "get_host_cpu_features", fail)
    assert Target.of_host.__wrapped__(Target).vector_bytes == 16


def test_an_operand_of_another_dtype_is_refused():
    """An address has no dtype: the kernel would read whatever lies there."""
    kinds = Kinds(torch.float64, torch.int32, torch.float64, 0)
    kernel = native.native(pairs_native.EdgeSoftmaxBackward, kinds)
    numbers = torch.zeros(1, 3, 2, dtype=torch.float64)
    layout = {"order": torch.zeros(1, dtype=torch.int32), "ptr": torch.tensor([0, 3])}
    layout |= {name: torch.zeros(3, dtype=torch.int32) for name in ("other", "edge")}
    sizes = {"batches": 1, "heads": 2, "group": 1, "rows": 1, "edges": 3}
    operands = dict.fromkeys(("alpha", "grad", "grad_lse", "out"), numbers) | layout | sizes
    kernel.bind(**operands).run(0, 1, torch.empty(0))
    with pytest.raises(TypeError, match=r"alpha must be contiguous, of torch.float64, got .*32"):
        kernel.bind(**operands | {"alpha": numbers.float()})
    with pytest.raises(TypeError, match=r"other must be contiguous, of torch.int32, got .*int32"):
        kernel.bind(**operands | {"other": torch.zeros(6, dtype=torch.int32)[::2]})
