"""A language model trains on any causal graph: windows and strides learn Python's own sources as
the full past does.

    python examples/13_a_language_model_on_any_causal_graph.py --seeds 1 --steps 2000 --length 256
    --width 128 --bf16 \
        --checkpoint model.safetensors

writes a checkpoint for each graph after every quarter of the steps, and goes on from it where there
is one.
"""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import graphattn as ga
from graphattn.bench import compare

ask = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ask.add_argument("--seeds", type=int, default=2)
ask.add_argument("--steps", type=int, default=150)
ask.add_argument("--length", type=int, default=64, help="characters of an example")
ask.add_argument("--batch", type=int, default=8)
ask.add_argument("--width", type=int, default=32)
ask.add_argument("--layers", type=int, default=2)
ask.add_argument(
    "--rate", type=float, default=2e-2, help="learning rate, reached after a tenth of the steps"
)
ask.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
ask.add_argument("--checkpoint", type=Path, help="safetensors file to write, and to go on from")
options = ask.parse_args()

if options.width <= 64:
    torch.set_num_threads(1)  # small tensors: a second thread only waits

files = [
    "argparse.py",
    "ast.py",
    "dataclasses.py",
    "enum.py",
    "inspect.py",
    "pathlib.py",
    "typing.py",
]
folder = Path(sysconfig.get_path("stdlib"))
text = "".join((folder / name).read_text("utf-8") for name in files if (folder / name).exists())
text = "".join(c for c in text if c == "\n" or " " <= c <= "~")
codes = torch.tensor([0 if c == "\n" else ord(c) - 31 for c in text])  # 0 to 95
learned, held_out = codes[: len(codes) * 9 // 10], codes[len(codes) * 9 // 10 :]
heads = max(1, options.width // 16)


def batch(data: torch.Tensor, made: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Characters (B, N), and the character after each."""
    start = torch.randint(len(data) - options.length - 1, (options.batch, 1), generator=made)
    found = data[start + torch.arange(options.length + 1)]
    return found[:, :-1], found[:, 1:]


def loss_of(model: torch.nn.Module, data: torch.Tensor, made: torch.Generator) -> torch.Tensor:
    x, y = batch(data, made)
    with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
        logits = model(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, made: torch.Generator) -> float:
    loss = loss_of(model, learned, made)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def start_from(seed: int, graph: ga.graphs.Pattern, backend: str = "auto"):
    """A model, its optimizer, and the generator that draws its examples."""
    torch.manual_seed(seed)
    hidden = 4 * options.width
    model = ga.models.GPT.llama(
        96, options.width, heads, options.layers, hidden, graph=graph, backend=backend
    )
    # of the size that blocks add: a small model learns sooner
    torch.nn.init.normal_(model.embedding.weight)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, betas=(0.9, 0.95), fused=True)
    return model, optimizer, torch.Generator().manual_seed(seed)


def train(name: str, graph: ga.graphs.Pattern, seed: int) -> tuple[torch.nn.Module, float]:
    """The trained model, and its loss on text that it has not seen, in bits a character."""
    model, optimizer, made = start_from(seed, graph)
    file = options.checkpoint and options.checkpoint.with_stem(
        f"{options.checkpoint.stem}-{name}-{seed}"
    )
    first = resume(model, optimizer, made, file) if file and file.exists() else 0
    quarter = math.ceil(options.steps / 4)
    print(f"  {name:8} seed {seed}: {first} steps are done; then", end=" ")
    for number in range(first + 1, options.steps + 1):
        warm, left = number / max(1, options.steps // 10), 1 - (number - 1) / options.steps
        optimizer.param_groups[0]["lr"] = options.rate * min(1.0, warm) * left
        loss = step(model, optimizer, made)
        if number % quarter == 0 or number == options.steps:
            print(f"{loss / math.log(2):.2f},", end=" ", flush=True)
            if file:
                save(model, optimizer, made, number, file)
    with torch.no_grad():
        unseen = torch.Generator().manual_seed(1)
        found = float(sum(loss_of(model, held_out, unseen) for _ in range(32)) / 32 / math.log(2))
    print(f"and {found:.2f} bits a character of unseen text")
    return model, found


def written_by(model: torch.nn.Module) -> str:
    """What the model goes on with after a ``def``."""
    prompt = torch.tensor([[ord(c) - 31 for c in "    def "]])
    how = {"strategy": "sample", "temperature": 0.6, "generator": torch.Generator().manual_seed(0)}
    found = ga.models.generate(model.eval(), prompt, max_new_tokens=60, **how)[0].tolist()
    return repr("".join("\n" if c == 0 else chr(c + 31) for c in found))


def save(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    made: torch.Generator,
    number: int,
    file: Path,
):
    """Weights, what AdamW keeps of each, the random numbers to come and the number of steps, as one
    file of tensors.
    """
    names = [name for name, _ in model.named_parameters()]
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for index, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"{key}.{names[index]}": value for key, value in kept.items()}
    whole = file.with_suffix(".part")
    save_file(tensors | {"random": made.get_state(), "number": torch.tensor(number)}, whole)
    whole.replace(file)  # an interrupted run leaves the old file or the new one


def resume(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, made: torch.Generator, file: Path
) -> int:
    """The number of steps done."""
    tensors, own = load_file(file), dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[f"model.{name}"])
    keys = ("step", "exp_avg", "exp_avg_sq")
    state = {i: {key: tensors[f"{key}.{name}"] for key in keys} for i, name in enumerate(own)}
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    made.set_state(tensors["random"])
    return int(tensors["number"])


def by_counting(past: int) -> float:
    """Bits a character of the unseen text, knowing how often each followed the ``past`` characters
    before it.
    """
    place = 96 ** torch.arange(past, -1, -1)
    counts = (
        torch.bincount(learned.unfold(0, past + 1, 1) @ place, minlength=96 ** (past + 1)).view(
            -1, 96
        )
        + 0.01
    )
    bits = (counts.sum(1, keepdim=True) / counts).log2().flatten()
    return float(bits[held_out.unfold(0, past + 1, 1) @ place].mean())


def slower_by_message_passing() -> dict[str, tuple[float, float]]:
    """How many times the time of "auto" a training step takes: by what the bench says of attention,
    and measured.

    Predicted: what is not attention stays, (step - layers * auto + layers * message_passing) /
    step.
    """
    backends, timed = (
        ("auto", "message_passing"),
        {name: patterns[name] for name in ("causal", "window", "strided")},
    )
    ms: dict[tuple[str, str], float] = {}
    for name, pattern in timed.items():
        models = {backend: start_from(0, pattern, backend) for backend in backends}
        rounds, stop = 0, time.perf_counter() + 1
        while rounds < 2 or time.perf_counter() < stop:  # the first makes plans
            rounds += 1
            for backend, made in models.items():
                start = time.perf_counter()
                step(*made)
                ms[name, backend] = min(
                    ms.get((name, backend), math.inf), 1e3 * (time.perf_counter() - start)
                )
    dtype = torch.bfloat16 if options.bf16 else torch.float32
    sizes = {
        "heads": heads,
        "head_dim": options.width // heads,
        "batch": options.batch,
        "dtype": dtype,
    }
    found = {}
    for name, pattern in timed.items():
        result = compare(pattern(options.length), **sizes, peers=backends, repeats=5, limit=5)
        fast, slow = (min(row.ms["forward + backward"]) for row in result.rows)
        predicted = 1 + options.layers * (slow - fast) / ms[name, "auto"]
        found[name] = predicted, ms[name, "message_passing"] / ms[name, "auto"]
    return found


patterns = {
    "itself": ga.graphs.self_loops(...),  # the control: a character that reads no other
    "causal": ga.graphs.causal(...),
    "window": ga.graphs.sliding_window(..., 32, causal=True),
    "strided": ga.graphs.sparse_strided(..., 16),
}
one_before = by_counting(1)
print(
    f"{len(text):,} characters of Python; examples of {options.length}, {options.batch} at a time"
)
print(
    f"counting characters: {by_counting(0):.2f} bits a character; by the one before: "
    f"{one_before:.2f}"
)
bits: dict[str, list[float]] = {name: [] for name in patterns}
texts = {}
for seed in range(options.seeds):
    for name, pattern in patterns.items():
        model, found = train(name, pattern, seed)
        bits[name].append(found)
        texts[name] = written_by(model) if seed == options.seeds - 1 else ""

ratios = slower_by_message_passing()
for name, pattern in patterns.items():
    edges = pattern(options.length).num_edges
    print(
        f"{name}, {edges:,} edges: {min(bits[name]):.2f} to {max(bits[name]):.2f} bits a "
        "character of unseen text"
    )
    print(f"  {texts[name]}")
    if name in ratios:
        predicted, measured = ratios[name]
        print(
            "  a training step takes with message_passing, in times of auto: "
            f"predicted by the bench {predicted:.1f}, measured {measured:.1f}"
        )

worst = {name: max(found) for name, found in bits.items()}
# a graph without other characters knows one character, and no more
assert min(bits["itself"]) > one_before - 0.05
assert max(worst["causal"], worst["window"], worst["strided"]) < one_before - 0.1, (
    "more steps are needed"
)
for local in ("window", "strided"):
    assert all(there < full + 0.15 for there, full in zip(bits[local], bits["causal"], strict=True))
