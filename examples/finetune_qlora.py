"""Fine-tune a small Llama with QLoRA: frozen weights in NF4, low-rank adapters that are trained, compared with eager.

    python examples/finetune_qlora.py [--layers 4] [--steps 8] [--weights nf4] [--adapters FOLDER]

The model is LitGPT's Llama with random weights, so nothing is downloaded. It needs the packages litgpt, torchao and
safetensors, and the plugin thunder-plugin-quantization. ``FOLDER`` gets the adapters in the format of peft.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import litgpt
import torch
import torch.nn.functional as F

import thunder
from thunder_plugin_quantization import load_lora, merge_lora, quantize, save_lora


def main() -> None:
    """Train, compare, save, load, merge."""
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = _small_llama(options.layers)
    tokens = torch.randint(0, model.config.vocab_size, (2, 65))

    compiled = thunder.jit(
        model,
        transforms=[
            {"quantization": {"weights": options.weights}},
            {"lora": {"r": 8, "lora_alpha": 16, "target_modules": ["attn", "mlp"]}},
        ],
    )
    print("\n".join(thunder.explain(compiled).module_notes))
    start = copy.deepcopy({name: each for name, each in compiled.named_parameters() if each.requires_grad})

    losses, seconds = _train(compiled, compiled, tokens, options.steps)
    trained = {name: each.detach().clone() for name, each in compiled.named_parameters() if each.requires_grad}
    eager = thunder.original(compiled)
    with torch.no_grad():
        for name, each in start.items():
            eager.get_parameter(name).copy_(each)
    expected, eager_seconds = _train(eager, eager, tokens, options.steps)
    torch.testing.assert_close(losses, expected)
    print(f"losses {', '.join(f'{loss:.4f}' for loss in losses)}")
    print("Losses equal eager's: yes (torch.testing.assert_close)")
    print(f"later steps, median: thunder {seconds * 1e3:.1f} ms, eager {eager_seconds * 1e3:.1f} ms")

    with torch.no_grad():
        for name, each in trained.items():
            compiled.get_parameter(name).copy_(each)
    with tempfile.TemporaryDirectory() as folder:
        save_lora(compiled, options.adapters or folder)
        loaded = thunder.jit(load_lora(quantize(model, options.weights), options.adapters or folder))
    with torch.no_grad():
        result = compiled(tokens)
        torch.testing.assert_close(loaded(tokens), result)
        torch.testing.assert_close(merge_lora(compiled)(tokens), result, rtol=1e-3, atol=1e-3)
    print("Adapters saved, loaded and merged: the results are the same")


def _train(model: Any, call: Callable[..., Any], tokens: torch.Tensor, steps: int) -> tuple[list[float], float]:
    """Losses, and the median of the seconds of a step after the first."""
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 3e-3)
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, statistics.median(seconds[1:])


def _small_llama(layers: int) -> Any:
    config = litgpt.Config.from_name(
        "Llama-2-7b-hf", n_layer=layers, n_embd=128, n_head=4, n_query_groups=4, intermediate_size=384, vocab_size=512
    )
    return litgpt.GPT(config)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tune a small Llama with QLoRA.")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model")
    parser.add_argument("--steps", type=int, default=8, help="steps of training, at least two")
    parser.add_argument("--weights", choices=["nf4", "int4", "int8", "float8"], default="nf4")
    parser.add_argument("--adapters", help="a folder for the adapters")
    return parser.parse_args()


if __name__ == "__main__":
    main()
