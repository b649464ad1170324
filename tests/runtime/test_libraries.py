"""Libraries around compiled models: Hugging Face's ``generate`` and ``Trainer``, Lightning's Trainer and Fabric."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import RecompileWarning, UncacheableWarning

pytestmark = [
    pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules"),
    # Of the libraries, about themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
]


@pytest.fixture
def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


GENERATIONS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 0.9},
    "beams": {"do_sample": False, "num_beams": 2},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
    "no cache": {"do_sample": False, "use_cache": False},
}


def generated(model: Any, **options: Any) -> torch.Tensor:
    torch.manual_seed(1)
    tokens = torch.randint(2, 64, (2, 5))
    result: torch.Tensor = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=4, **options)
    return result


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.slow
def test_generate(name: str, llama: Any, jit: Callable[..., Any]) -> None:
    compiled, options = jit(llama), GENERATIONS[name]
    expected = generated(llama, **options)
    assert thunder.cache_misses(compiled) == 0
    for _ in range(2):
        assert torch.equal(generated(compiled, **options), expected)
    # the prompt, the first token behind it, and the others, for which the cache has another length each
    misses = 2 if name in ("static cache", "no cache") else 3
    assert thunder.cache_misses(compiled) == misses
    assert thunder.cache_hits(compiled) == 8 - misses


@pytest.mark.slow
def test_generate_beyond_the_limit_of_entries(llama: Any) -> None:
    compiled = thunder.jit(llama, recompile_limit=2)
    with pytest.warns(RecompileWarning) as warned:
        found = generated(compiled, do_sample=False)
    assert torch.equal(found, generated(llama, do_sample=False))
    assert len(warned) == 1
    assert sum(thunder.explain(compiled).fallbacks.values()) == 2


class Sentences(Dataset[dict[str, Any]]):
    """With a column that no forward takes."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = torch.randint(0, 64, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens, "unused": index}


@pytest.mark.battery
@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}], ids=str)
def test_trainer_of_hugging_face(options: dict[str, Any], llama: Any, jit: Callable[..., Any], tmp_path: Path) -> None:
    histories = []
    compiled = jit(copy.deepcopy(llama))
    for model in (llama, compiled):
        arguments = TrainingArguments(
            str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[],
            logging_steps=1, disable_tqdm=True, save_strategy="no", seed=1, **options,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
        trainer.train()
        history = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        histories.append([*history, trainer.evaluate()["eval_loss"]])
    assert len(histories[0]) == 9
    assert histories[1] == pytest.approx(histories[0], rel=1e-5)
    assert thunder.cache_hits(compiled) > 0
    trainer.save_model(str(tmp_path))
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(dict(again.state_dict()), dict(compiled.state_dict()))


class Lightning(LightningModule):
    """Calls itself in training, and its forward in validation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))
        self.losses: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = (self(x) - y).square().mean()
        self.log("loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("error", (self.forward(x) - y).abs().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class LogsInForward(Lightning):
    """Its trainer accumulates what forward logs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.log("mean", y.detach().mean(), on_step=True, on_epoch=True)
        self.log_dict({"largest": y.max(), "one": 1.0})
        return y


def batches() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(32, 4, generator=generator), torch.randn(32, 1, generator=generator))
    return DataLoader(data, batch_size=8)


def lightning_models(jit: Callable[..., Any], kind: type[Lightning] = Lightning) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = kind()
    return model, jit(copy.deepcopy(model))


def fit(models: tuple[Any, Any]) -> list[dict[str, torch.Tensor]]:
    """Train the models; the metrics of each."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    metrics = []
    for model in models:
        torch.manual_seed(1)
        trainer = LightningTrainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, batches(), batches())
        metrics.append(dict(trainer.callback_metrics))
    torch.testing.assert_close(models[1].losses, models[0].losses)
    return metrics


def test_trainer_of_lightning(jit: Callable[..., Any]) -> None:
    models = lightning_models(jit)
    torch.testing.assert_close(*fit(models))
    assert thunder.cache_misses(models[1]) == 2
    assert thunder.cache_hits(models[1]) >= 14


@pytest.mark.slow
def test_a_forward_that_logs_runs_eagerly(jit: Callable[..., Any]) -> None:
    models = lightning_models(jit, LogsInForward)
    with pytest.warns(UncacheableWarning, match=r"logs by its trainer, with self\.log, at .*test_libraries"):
        metrics = fit(models)
    torch.testing.assert_close(*metrics)
    assert {"mean_step", "mean_epoch", "largest", "one"} <= metrics[0].keys()


def test_fabric(jit: Callable[..., Any]) -> None:
    models, losses = lightning_models(jit), []
    for model in models:
        fabric = Fabric(accelerator="cpu", devices=1)
        wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        torch.manual_seed(1)
        losses.append([])
        for x, y in batches():
            loss = (wrapped(x) - y).square().mean()
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.detach())
    torch.testing.assert_close(*losses)
    assert (thunder.cache_hits(models[1]), thunder.cache_misses(models[1])) == (3, 1)
