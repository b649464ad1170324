"""Train a small Llama twice, eagerly and compiled by Thunder, and compare the losses and the times.

    python examples/train_llama.py [--steps 100] [--plot losses.png] [--optimizer adamw] [--device cpu] [--json FILE]

The model is LitGPT's Llama with random weights. It learns to continue a text byte by byte: the license of this
repository, so nothing is downloaded, and losses are reproducible. Both models have equal weights and batches, and their
steps alternate, so that changes in the machine's speed affect both.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

import thunder

if TYPE_CHECKING:
    import litgpt

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "LICENSE",)
BATCH, LENGTH = 8, 64
# Learning rates for which training is stable. With 0.1, the losses of eager SGD change by 4 % in 200 steps if the last
# layer's weights are scaled by 1 + 2e-7.
OPTIMIZERS = {"adamw": (torch.optim.AdamW, 5e-4), "sgd": (torch.optim.SGD, 0.03)}


def main() -> None:
    """Train, compare, report."""
    options = _options()
    _require("litgpt", *(["matplotlib"] if options.plot else []))
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    text = torch.tensor(list(b"".join(path.read_bytes() for path in options.text or TEXT)), device=options.device)
    model = _small_llama(options.layers).to(options.device)

    # One step of a copy, so that PyTorch loads its libraries before the measurement.
    Run("warm-up", copy.deepcopy(model), options.optimizer).step(*_batches(text, 1)[0])
    eager = Run("eager", copy.deepcopy(model), options.optimizer)
    compiled = Run("thunder", thunder.jit(model), options.optimizer)
    for batch in _batches(text, options.steps):
        for run in (eager, compiled):
            run.step(*batch)

    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    print(
        f"A Llama of {options.layers} layers, {size:.1f} M parameters, on {options.device}; threads: {options.threads}"
    )
    print(f"{options.steps} steps of {options.optimizer}, batch {BATCH} x {LENGTH} bytes of a text of {len(text):,}\n")
    print(_table(eager, compiled))
    if options.plot:
        _plot(eager, compiled, options.plot)
        print(f"\nplot written to {options.plot}")
    if options.json:
        runs = {run.name: {"losses": run.losses, "seconds": run.seconds} for run in (eager, compiled)}
        options.json.write_text(json.dumps(runs | {"largest difference": _difference(eager, compiled)}) + "\n")


@dataclass
class Run:
    """A training, with the loss and the seconds of each step so far."""

    name: str
    model: torch.nn.Module
    method: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        optimizer, rate = OPTIMIZERS[self.method]
        self.optimizer = optimizer(self.model.parameters(), lr=rate)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Run forward, backward and the optimizer. The first step compiles."""
        start = time.perf_counter()
        loss = functional.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())
        if loss.is_cuda:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - start)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=_at_least_two, default=100, help="number of training steps (default: 100)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (default: 4)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--device", default="cpu", help="where to train: cpu (default), cuda")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    parser.add_argument("--text", type=Path, nargs="+", help="files to learn (default: the license)")
    parser.add_argument("--plot", type=Path, help="write a plot of both losses to this PNG file")
    parser.add_argument("--json", type=Path, help="write the losses and seconds of each step to this file")
    return parser.parse_args()


def _at_least_two(given: str) -> int:
    if (steps := int(given)) < 2:
        raise argparse.ArgumentTypeError("at least 2: the first step is reported apart from the others")
    return steps


def _require(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"This example needs {' and '.join(missing)}. Install them with: pip install '{ROOT}[examples]'"
        )


def _small_llama(layers: int) -> litgpt.GPT:
    import litgpt

    sizes = {"n_head": 4, "n_embd": 128, "intermediate_size": 352, "padded_vocab_size": 256, "block_size": LENGTH}
    model = litgpt.GPT(litgpt.Config.from_name("Llama-2-7b-hf", n_layer=layers, vocab_size=256, **sizes))
    return model.apply(model._init_weights)


def _batches(text: torch.Tensor, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """``count`` pairs (bytes, the byte after each) of shape (BATCH, LENGTH), from random offsets with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(text) - LENGTH, (count, BATCH, 1), generator=generator).to(text.device)
    places = starts + torch.arange(LENGTH, device=text.device)
    return [(text[place], text[place + 1]) for place in places]


def _difference(eager: Run, compiled: Run) -> float:
    """The largest relative difference of two losses of the same step; nan if one is nan."""
    expected, actual = torch.tensor(eager.losses), torch.tensor(compiled.losses)
    return ((actual - expected).abs() / expected.abs()).max().item()


def _table(eager: Run, compiled: Run) -> str:
    first = [run.seconds[0] for run in (eager, compiled)]
    later = [statistics.median(run.seconds[1:]) for run in (eager, compiled)]
    lines = [
        f"{'':<26}{'eager':>10}{'thunder':>10}{'ratio':>8}",
        f"{'first step':<26}{first[0]:>8.2f} s{first[1]:>8.2f} s{first[1] / first[0]:>8.2f}",
        f"{'later steps, median':<26}{later[0] * 1e3:>7.1f} ms{later[1] * 1e3:>7.1f} ms{later[1] / later[0]:>8.2f}",
        f"{'loss of the first step':<26}{eager.losses[0]:>10.4f}{compiled.losses[0]:>10.4f}",
        f"{'loss of the last step':<26}{eager.losses[-1]:>10.4f}{compiled.losses[-1]:>10.4f}",
        f"largest relative difference of the losses: {_difference(eager, compiled):.1e}",
    ]
    return "\n".join(lines)


def _plot(eager: Run, compiled: Run, target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(eager.losses, label="eager", color="tab:orange", linewidth=4, alpha=0.5)
    axes.plot(compiled.losses, label="thunder", color="tab:blue", linewidth=1.2)
    axes.set(xlabel="step", ylabel="loss", title=f"Training a small Llama ({eager.method})")
    axes.text(0.02, 0.04, f"largest relative difference {_difference(eager, compiled):.1e}", transform=axes.transAxes)
    axes.legend()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
