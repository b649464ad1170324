"""Train a small Llama on several processes with DistributedDataParallel, compiled by Thunder, and compare with eager.

    torchrun --nproc-per-node 2 examples/train_ddp.py [--steps 20] [--layers 4] [--device cpu] [--accumulate 1]

It runs on CPUs with gloo and on GPUs with NCCL. The model is LitGPT's Llama with random weights; it learns to continue
the license of this repository byte by byte. Three models with equal weights and batches are trained in alternation:
eager PyTorch; a compiled module in the wrapper, whose gradients are averaged after backward ("inside"); the compiled
wrapper, whose gradients are averaged during backward ("thunder").
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import litgpt
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import thunder

ROOT = Path(__file__).resolve().parents[1]
BATCH, LENGTH = 8, 64


def main() -> None:
    """Train in one process of torchrun."""
    options = _options()
    device = torch.device(options.device, int(os.environ["LOCAL_RANK"]) if options.device == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    _compare(options, device)
    # The models are freed before this. If the reducer of a DistributedDataParallel holds the last reference to a gloo
    # group, it waits for the group's threads while it holds the GIL, which they may need.
    dist.destroy_process_group()


def _compare(options: argparse.Namespace, device: torch.device) -> None:
    """Train the models in alternation, and print the results on rank 0."""
    models = {
        "eager": DistributedDataParallel(_model(options, device)),
        "inside": DistributedDataParallel(thunder.jit(_model(options, device))),
        "thunder": thunder.jit(DistributedDataParallel(_model(options, device))),
    }
    losses, seconds = {name: [] for name in models}, {name: [] for name in models}
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=5e-4) for name, model in models.items()}
    text = torch.tensor(list((ROOT / "LICENSE").read_bytes()), device=device)
    for count in range(options.steps):
        batches = [_batch(text, count * options.accumulate + part) for part in range(options.accumulate)]
        for name, model in models.items():
            start = time.perf_counter()
            losses[name].append(_step(model, optimizers[name], batches))
            seconds[name].append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(f"A Llama of {options.layers} layers on {dist.get_world_size()} processes, {options.steps} steps")
        for name in models:
            later = statistics.median(seconds[name][1:]) * 1e3
            print(f"{name:<8} loss {losses[name][0]:.4f} -> {losses[name][-1]:.4f}, {later:.1f} ms a step")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="number of training steps (default: 20)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (default: 4)")
    default = "cuda" if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]) else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default, help=f"default: {default} here")
    parser.add_argument("--accumulate", type=int, default=1, help="batches per step and synchronization (default: 1)")
    return parser.parse_args()


def _model(options: argparse.Namespace, device: torch.device) -> Any:
    sizes = {"n_head": 4, "n_embd": 128, "intermediate_size": 352, "padded_vocab_size": 256, "block_size": LENGTH}
    torch.manual_seed(0)
    model = litgpt.GPT(litgpt.Config.from_name("Llama-2-7b-hf", n_layer=options.layers, vocab_size=256, **sizes))
    return model.apply(model._init_weights).to(device)


def _batch(text: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of this rank in a step, and the byte after each."""
    generator = torch.Generator().manual_seed(count * dist.get_world_size() + dist.get_rank())
    starts = torch.randint(len(text) - LENGTH, (BATCH, 1), generator=generator).to(text.device)
    places = starts + torch.arange(LENGTH, device=text.device)
    return text[places], text[places + 1]


def _step(model: Any, optimizer: torch.optim.Optimizer, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    total = 0.0
    for index, (inputs, targets) in enumerate(batches):
        with nullcontext() if index == len(batches) - 1 else model.no_sync():
            loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()) / len(batches)
            loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


if __name__ == "__main__":
    main()
