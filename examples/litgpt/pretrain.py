"""Pretrain a model of LitGPT with Lightning Fabric, compiled by Thunder.

    python examples/litgpt/pretrain.py [--steps 20] [--model pythia-160m] [--set n_layer=4]
    torchrun --nproc-per-node 2 examples/litgpt/pretrain.py --strategy fully_shard --accumulate 2

Without options it trains a small Llama on the CPU on the bytes of this repository's license, in seconds. ``--model``
takes any name of LitGPT, ``--data`` any of its data modules. Checkpoints are those of LitGPT: ``lit_model.pth`` and
``model_config.yaml``, with the optimizer, so that ``--resume`` continues. docs/litgpt.md compares the options with
those of lightning-thunder's extension of LitGPT.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from lightning.fabric.strategies import DDPStrategy, ModelParallelStrategy
from litgpt import GPT, Config, Tokenizer
from litgpt import data as data_modules
from litgpt.utils import chunked_cross_entropy, copy_config_files, save_config
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

import thunder

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"n_layer": 2, "n_head": 4, "n_embd": 128, "intermediate_size": 352, "block_size": 64}
BYTES = {"vocab_size": 256, "padded_vocab_size": 256}


def main() -> None:
    """Train in this process, which torchrun or Fabric may have started beside others."""
    options = _options()
    fabric = L.Fabric(
        accelerator=options.accelerator,
        devices=_devices(options),
        num_nodes=options.nodes,
        strategy=_strategy(options),
        precision=options.precision,
    )
    fabric.launch()
    fabric.seed_everything(options.seed, verbose=False)
    if fabric.device.type == "cpu":
        torch.set_num_threads(options.threads)
    config = _config(options)
    with fabric.init_module(empty_init=False):
        model = GPT(config)
    model.apply(model._init_weights)
    model.max_seq_length = options.length or config.block_size
    training, validation = _data(options, model.max_seq_length)
    training, validation = fabric.setup_dataloaders(training, validation)
    prepared = fabric.setup(model)
    optimizer = torch.optim.AdamW(prepared.parameters(), lr=options.learning_rate, weight_decay=0.1, betas=(0.9, 0.95))
    optimizer = fabric.setup_optimizers(optimizer)
    run = Run(fabric, options, config, _compiled(prepared, options), optimizer)
    if options.resume:
        run.load(options.resume / "lit_model.pth")
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    fabric.print(f"{config.name}: {size:.1f} M parameters on {fabric.world_size} x {fabric.device.type}")
    run.fit(training, validation)


class Run:
    """A training: the compiled model, the optimizer, and how far it is."""

    def __init__(
        self, fabric: L.Fabric, options: argparse.Namespace, config: Config, model: Any, optimizer: Any
    ) -> None:
        self.fabric, self.options, self.config = fabric, options, config
        self.model, self.optimizer = model, optimizer
        self.step = 0

    def fit(self, training: DataLoader, validation: DataLoader) -> None:
        """Train for the steps of the options; validate and save where they say, and at the end."""
        options, fabric = self.options, self.fabric
        batches = _endless(training)
        for _ in range(self.step * options.accumulate):
            next(batches)  # those before the checkpoint
        tokens = options.batch * self.model.max_seq_length * options.accumulate * fabric.world_size
        bar = tqdm(total=options.steps, initial=self.step, unit="step", disable=fabric.global_rank != 0)
        start, seconds, first = time.perf_counter(), 0.0, None
        while self.step < options.steps:
            began = time.perf_counter()
            loss = self._train_step(batches)
            self.step += 1
            is_last = self.step == options.steps
            if self.step % options.log_every == 0 or is_last:
                mean = fabric.all_reduce(loss, reduce_op="mean").item()  # waits for the device
                seconds += time.perf_counter() - began
                first = first or (seconds, self.step)  # the first step compiles
                speed = tokens * (self.step - first[1]) / (seconds - first[0]) if self.step > first[1] else math.nan
                bar.set_postfix_str(f"loss {mean:.4f}, {speed:,.0f} tokens/s")
                if is_last:
                    fabric.print(f"step {self.step}: loss {mean:.4f}, {speed:,.0f} tokens/s")
            else:
                seconds += time.perf_counter() - began
            bar.update()
            if is_last or (options.validate_every and self.step % options.validate_every == 0):
                self._report(validation)
            if options.save_every and self.step % options.save_every == 0:
                self.save(options.out / f"step-{self.step:08d}")
        bar.close()
        fabric.print(f"{time.perf_counter() - start:.1f} s, with compilation")
        self.save(options.out / "final")

    def _train_step(self, batches: Iterator[torch.Tensor]) -> torch.Tensor:
        """Backward of each micro-batch; only the last one communicates gradients. Returns the mean loss."""
        options, fabric = self.options, self.fabric
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        losses = []
        for part in range(options.accumulate):
            is_accumulating = part < options.accumulate - 1
            with fabric.no_backward_sync(self.model, enabled=is_accumulating and fabric.world_size > 1):
                loss = self._loss(next(batches)) / options.accumulate
                fabric.backward(loss)
            losses.append(loss.detach())
        if options.max_norm:
            fabric.clip_gradients(self.model, self.optimizer, max_norm=options.max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).sum()

    def _loss(self, batch: torch.Tensor) -> torch.Tensor:
        length = self.model.max_seq_length
        inputs, targets = batch[:, :length].long(), batch[:, 1 : length + 1].long()
        return chunked_cross_entropy(self.model(inputs), targets, chunk_size=0)

    def _learning_rate(self) -> float:
        """A linear warm-up, then a cosine down to a tenth."""
        options = self.options
        if self.step < options.warm_up:
            return options.learning_rate * (self.step + 1) / options.warm_up
        done = (self.step - options.warm_up) / max(options.steps - options.warm_up, 1)
        return options.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(done, 1.0))))

    @torch.no_grad()
    def _report(self, validation: DataLoader) -> None:
        """Print the mean loss of the first batches of the validation data on all ranks."""
        self.model.eval()
        losses = [
            self._loss(batch) for _, batch in zip(range(self.options.validation_batches), validation, strict=False)
        ]
        self.model.train()
        loss = self.fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean").item()
        self.fabric.print(f"step {self.step}: validation loss {loss:.4f}, perplexity {math.exp(loss):.2f}")

    def save(self, folder: Path) -> None:
        """Write a checkpoint that LitGPT reads, with the whole parameters, also those that ranks share."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {"model": self.model, "optimizer": self.optimizer, "step": self.step}
        self.fabric.save(folder / "lit_model.pth", state)
        if self.fabric.global_rank == 0:
            save_config(self.config, folder)
            if self.options.tokenizer:
                copy_config_files(self.options.tokenizer, folder)
        self.fabric.print(f"saved {folder}")

    def load(self, file: Path) -> None:
        """Continue with a checkpoint of `save`."""
        state = {"model": self.model, "optimizer": self.optimizer, "step": self.step}
        self.fabric.load(file, state)
        self.step = state["step"]


def _compiled(module: Any, options: argparse.Namespace) -> Any:
    """What `Fabric.setup` returned, compiled: gradients are reduced in the compiled backward."""
    if options.compiler == "thunder":
        chosen = {} if options.executors is None else {"executors": options.executors}
        return thunder.jit(module, config=options.thunder_config, **chosen)
    if options.compiler == "torch":
        module.compile()
    return module


def _strategy(options: argparse.Namespace) -> Any:
    if options.strategy == "ddp":
        return DDPStrategy()
    if options.strategy == "fully_shard":
        return ModelParallelStrategy(
            lambda model, mesh: _sharded(model, mesh, not options.keep_gathered),
            data_parallel_size=_devices(options) * options.nodes,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
        )
    return "auto"


def _devices(options: argparse.Namespace) -> int:
    """The processes of this node."""
    return (torch.cuda.device_count() or 1) if options.devices == "auto" else options.devices


def _sharded(model: Any, mesh: Any, reshard: bool) -> Any:
    """The model with each block as a group of `fully_shard`, over the data-parallel dimension of Fabric's mesh."""
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh["data_parallel"], reshard_after_forward=reshard)
    return fully_shard(model, mesh=mesh["data_parallel"])


def _config(options: argparse.Namespace) -> Config:
    changes = {} if options.model else {**SMALL, **BYTES}
    return Config.from_name(options.model or "Llama-2-7b-hf", **{**changes, **dict(options.set)})


class Text(Dataset):
    """Windows of the bytes of files, each one byte longer than the sequences."""

    def __init__(self, content: bytes, length: int) -> None:
        self.content, self.length = torch.tensor(list(content)), length

    def __len__(self) -> int:
        return (len(self.content) - 1) // self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * self.length
        return self.content[start : start + self.length + 1]


def _data(options: argparse.Namespace, length: int) -> tuple[DataLoader, DataLoader]:
    """Loaders of training and validation data: those of a data module of LitGPT, or of the bytes of files."""
    if options.data:
        module = getattr(data_modules, options.data)(**json.loads(options.data_options))
        tokenizer = Tokenizer(options.tokenizer) if options.tokenizer else None
        module.connect(tokenizer=tokenizer, batch_size=options.batch, max_seq_length=length)
        module.prepare_data()
        module.setup()
        return module.train_dataloader(), module.val_dataloader()
    content = b"".join([path.read_bytes() for path in options.text or [ROOT / "LICENSE"]])
    cut = len(content) * 9 // 10
    shuffled = torch.Generator().manual_seed(options.seed)
    return (
        DataLoader(Text(content[:cut], length), options.batch, shuffle=True, drop_last=True, generator=shuffled),
        DataLoader(Text(content[cut:], length), min(options.batch, max(1, (len(content) - cut - 1) // length))),
    )


def _endless(loader: DataLoader) -> Iterator[torch.Tensor]:
    epoch = 0
    while True:
        if hasattr(loader.sampler, "set_epoch"):  # of a distributed sampler, which Fabric adds
            loader.sampler.set_epoch(epoch)
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise SystemExit(
                "The training data has less than one batch for each rank: use a smaller --batch or --length"
            )
        epoch += 1


def _pair(text: str) -> tuple[str, Any]:
    name, equal, value = text.partition("=")
    if not equal:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, yaml.safe_load(value)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_argument_group("model and data")
    model.add_argument("--model", help="a name of LitGPT's configurations (default: a small Llama)")
    model.add_argument(
        "--set", type=_pair, nargs="+", default=[], metavar="NAME=VALUE", help="changes of the model's configuration"
    )
    model.add_argument("--length", type=int, help="tokens of a sequence (default: the model's block size)")
    model.add_argument("--data", help="a data module of litgpt.data: TinyStories, for example")
    model.add_argument("--data-options", default="{}", help="its arguments, in JSON")
    model.add_argument("--text", type=Path, nargs="+", help="files whose bytes to learn instead (default: the license)")
    model.add_argument("--tokenizer", type=Path, help="the folder of a tokenizer, for --data")
    train = parser.add_argument_group("training")
    train.add_argument("--steps", type=int, default=20, help="optimizer steps (default: 20)")
    train.add_argument("--batch", type=int, default=4, help="sequences of a micro-batch on each rank (default: 4)")
    train.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step (default: 1)")
    train.add_argument("--learning-rate", type=float, default=1e-3)
    train.add_argument("--warm-up", type=int, default=5, help="steps (default: 5)")
    train.add_argument(
        "--max-norm", type=float, default=1.0, help="the norm to clip gradients to; 0: they are not clipped"
    )
    train.add_argument("--validate-every", type=int, default=0, help="steps (default: only at the end)")
    train.add_argument("--validation-batches", type=int, default=4)
    train.add_argument("--save-every", type=int, default=0, help="steps (default: only at the end)")
    train.add_argument("--log-every", type=int, default=1, help="steps (default: 1)")
    train.add_argument("--out", type=Path, default=Path("out/pretrain"), help="folder of the checkpoints")
    train.add_argument("--resume", type=Path, help="folder of a checkpoint of this program to continue")
    train.add_argument("--seed", type=int, default=42)
    fabric = parser.add_argument_group("Fabric")
    fabric.add_argument("--strategy", choices=("auto", "ddp", "fully_shard"), default="auto")
    fabric.add_argument("--keep-gathered", action="store_true", help="keep gathered parameters for backward (ZeRO-2)")
    fabric.add_argument("--accelerator", default="auto", help="cpu, cuda (default: what is there)")
    fabric.add_argument("--devices", default=os.environ.get("LOCAL_WORLD_SIZE", "1"), help="processes of this node")
    fabric.add_argument("--nodes", type=int, default=1)
    fabric.add_argument("--precision", default="32-true", help="bf16-true, bf16-mixed, 16-mixed (default: 32-true)")
    fabric.add_argument("--threads", type=int, default=1, help="threads of each process on CPUs (default: 1)")
    compiler = parser.add_argument_group("compiler")
    compiler.add_argument("--compiler", choices=("thunder", "torch", "none"), default="thunder")
    compiler.add_argument("--executors", nargs="*", help="Thunder's executors, in order (default: those of the device)")
    compiler.add_argument("--thunder-config", help="a configuration file or a preset: thunder:training")
    options = parser.parse_args()
    options.devices = options.devices if options.devices == "auto" else int(options.devices)
    return options


if __name__ == "__main__":
    main()
