"""A language model trains on any causal graph: windows and strides learn Python's own sources as the full past does.

    python examples/13_a_language_model_on_any_causal_graph.py --steps 2000 --length 512 --width 128 --bf16 \
        --checkpoint model.safetensors

writes a checkpoint for each graph, and goes on from it where there is one.
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

ask = argparse.ArgumentParser(description=__doc__)
ask.add_argument("--steps", type=int, default=80)
ask.add_argument("--length", type=int, default=128, help="characters of an example")
ask.add_argument("--batch", type=int, default=8)
ask.add_argument("--width", type=int, default=32)
ask.add_argument("--layers", type=int, default=2)
ask.add_argument("--rate", type=float, default=1e-2, help="learning rate, reached after a tenth of the steps")
ask.add_argument("--bf16", action="store_true", help="matrix products in bfloat16")
ask.add_argument("--checkpoint", type=Path, help="safetensors file to write, and to go on from")
options = ask.parse_args()

if options.width <= 64:
    torch.set_num_threads(1)  # small tensors: a second thread only waits

files = ["argparse.py", "ast.py", "dataclasses.py", "enum.py", "inspect.py", "pathlib.py", "typing.py"]
folder = Path(sysconfig.get_path("stdlib"))
text = "".join((folder / name).read_text() for name in files if (folder / name).exists())
text = "".join(c for c in text if c == "\n" or " " <= c <= "~")
codes = torch.tensor([0 if c == "\n" else ord(c) - 31 for c in text])  # 0 to 95
learned, held_out = codes[: len(codes) * 9 // 10], codes[len(codes) * 9 // 10 :]


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


def new_model(graph: ga.Pattern, backend: str = "auto") -> torch.nn.Module:
    torch.manual_seed(0)
    heads, hidden = max(1, options.width // 16), 4 * options.width
    return ga.models.llama(96, options.width, heads, options.layers, hidden, graph=graph, backend=backend)


def train(name: str, graph: ga.Pattern) -> tuple[torch.nn.Module, float]:
    """The trained model, and its loss on text that it has not seen, in bits a character."""
    model, made = new_model(graph), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, betas=(0.9, 0.95))
    file = options.checkpoint and options.checkpoint.with_stem(f"{options.checkpoint.stem}-{name}")
    first = resume(model, optimizer, made, file) if file and file.exists() else 0
    for number in range(first, options.steps):
        warm, left = (number + 1) / max(1, options.steps // 10), 1 - number / options.steps
        optimizer.param_groups[0]["lr"] = options.rate * min(1.0, warm) * left
        loss = step(model, optimizer, made)
        if (number + 1) % max(1, options.steps // 4) == 0:
            print(f"  {name:8} step {number + 1:5}  loss {loss / math.log(2):.2f} bits a character", flush=True)
    if file:
        save(model, optimizer, made, max(first, options.steps), file)
    with torch.no_grad():
        unseen = torch.Generator().manual_seed(1)
        return model, float(sum(loss_of(model, held_out, unseen) for _ in range(8)) / 8 / math.log(2))


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, made: torch.Generator, number: int, file: Path):
    """Weights, what AdamW keeps of each, the random numbers to come and the number of steps, as one file of tensors."""
    names = [name for name, _ in model.named_parameters()]
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for index, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"{key}.{names[index]}": value for key, value in kept.items()}
    save_file(tensors | {"random": made.get_state(), "number": torch.tensor(number)}, file)


def resume(model: torch.nn.Module, optimizer: torch.optim.Optimizer, made: torch.Generator, file: Path) -> int:
    """The number of steps done."""
    tensors, own = load_file(file), dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[f"model.{name}"])
    keys = ("step", "exp_avg", "exp_avg_sq")
    state = {i: {key: tensors[f"{key}.{name}"] for key in keys} for i, name in enumerate(own)}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    made.set_state(tensors["random"])
    return int(tensors["number"])


def seconds_a_step(graph: ga.Pattern, backend: str) -> float:
    """The fastest of four steps, after one that makes plans."""
    model, made, times = new_model(graph, backend), torch.Generator().manual_seed(0), []
    optimizer = torch.optim.AdamW(model.parameters(), options.rate)
    for _ in range(5):
        start = time.perf_counter()
        step(model, optimizer, made)
        times.append(time.perf_counter() - start)
    return min(times[1:])


patterns = {
    "causal": ga.graphs.causal(...),
    "window": ga.graphs.sliding_window(..., 32),
    "strided": ga.graphs.strided(..., 16),
}
print(f"{len(text):,} characters of Python; examples of {options.length}, {options.batch} at a time")
counts = torch.bincount(learned, minlength=96) + 1.0
by_frequency = float(-(counts.log2() - counts.sum().log2())[held_out].mean())
print(f"knowing only how frequent each character is: {by_frequency:.2f} bits a character")
unseen_loss = {}
for name, pattern in patterns.items():
    model, unseen_loss[name] = train(name, pattern)
    graph = pattern(options.length)
    faster = seconds_a_step(pattern, "message_passing") / seconds_a_step(pattern, "auto")
    print(
        f"{name:8} {graph.num_edges:,} edges: {unseen_loss[name]:.2f} bits a character of unseen text; a training step "
        f'with backend="auto" is {faster:.1f} times as fast as with "message_passing" here and now'
    )
    prompt = torch.tensor([[ord(c) - 31 for c in "    def "]])
    written = ga.models.generate(model.eval(), prompt, max_new_tokens=40)[0].tolist()
    print("  " + repr("".join("\n" if c == 0 else chr(c + 31) for c in written)))

assert options.steps < 80 or max(unseen_loss.values()) < by_frequency - 0.5
assert max(unseen_loss.values()) < min(unseen_loss.values()) + 0.3
