"""Compile a small Llama with Thunder, compare it with eager, and show what the compiler did.

    python examples/compile_llama.py [--layers 8] [--sequence 64]

The model is LitGPT's Llama with random weights, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import litgpt
import torch

import thunder

WIDTH = 100


def main() -> None:
    """Compile, compare, report."""
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = _small_llama(options.layers).eval()
    tokens = torch.randint(0, model.config.vocab_size, (1, options.sequence))
    compiled = thunder.jit(model)

    with torch.no_grad():
        expected = model(tokens)
        first, actual = _seconds(lambda: compiled(tokens))
        torch.testing.assert_close(actual, expected)
        eager_call, compiled_call = _steady(lambda: model(tokens), lambda: compiled(tokens))

        # Another sequence length: a guard fails, Thunder compiles again, and both entries stay in the cache.
        shorter = tokens[:, : options.sequence // 2]
        torch.testing.assert_close(compiled(shorter), model(shorter))
        torch.testing.assert_close(compiled(tokens), expected)

    _heading(f"A Llama of {options.layers} layers, {_millions(model)} parameters, input {tuple(tokens.shape)}")
    print("Outputs equal eager's: yes (torch.testing.assert_close, its default tolerances for float32)")

    _heading("The program as acquired: thunder.last_traces(model)[0]")
    _trace_excerpt(str(thunder.last_traces(compiled)[0]))
    _heading("The program as executed: thunder.last_traces(model)[-1]")
    _trace_excerpt(str(thunder.last_traces(compiled)[-1]))
    _heading("Its guards: thunder.last_prologue_traces(model)[-1]")
    _guards_excerpt(str(thunder.last_prologue_traces(compiled)[-1]))

    _heading("What happened: thunder.explain(model)")
    print(thunder.explain(compiled))

    _heading("Figures (one thread)")
    _figure("first call, compilation included", f"{first:8.3f} s")
    _figure("steady call, eager", f"{eager_call * 1e3:8.3f} ms")
    _figure("steady call, thunder", f"{compiled_call * 1e3:8.3f} ms   {compiled_call / eager_call:.2f} x eager")
    _figure("cache hits / misses", f"{thunder.cache_hits(compiled)} / {thunder.cache_misses(compiled)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=64, help="number of tokens in the input")
    return parser.parse_args()


def _small_llama(layers: int) -> litgpt.GPT:
    config = litgpt.Config.from_name(
        "Llama-2-7b-hf",
        n_layer=layers,
        n_head=8,
        n_embd=256,
        intermediate_size=688,
        padded_vocab_size=1024,
        vocab_size=1024,
        block_size=512,
    )
    return litgpt.GPT(config)


def _millions(model: torch.nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f} M"


def _seconds(call: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _steady(*calls: Callable[[], torch.Tensor], rounds: int = 15) -> list[float]:
    """Median seconds of each call, measured in alternation so that changes in the machine's speed affect all."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seconds in zip(calls, samples, strict=True):
            seconds.append(_seconds(call)[0])
    return [statistics.median(seconds) for seconds in samples]


def _heading(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")


def _figure(name: str, value: str) -> None:
    print(f"{name:<36}{value}")


def _trace_excerpt(source: str, inputs: int = 4, count: int = 28) -> None:
    """Print the header of a trace with its first inputs, and the first ``count`` lines of its body."""
    head, opening, rest = source.partition("def computation(\n")
    parameters, closing, body = rest.partition("\n):\n")
    names = parameters.splitlines()
    shown = [*names[:inputs], f"    … {len(names) - inputs} more inputs"]
    _excerpt(head + opening + "\n".join(shown) + closing, len(source))
    _excerpt(body, count)


def _guards_excerpt(source: str, count: int = 28) -> None:
    """Print the first lines of a prologue, and those from the first argument on, without the modes in between."""
    head, argument, rest = source.partition("        idx = args[0]")
    _excerpt(head, 4)
    _excerpt(argument + rest, count)


def _excerpt(source: str, count: int) -> None:
    """Print the first ``count`` lines, truncated to the terminal's width."""
    lines = source.splitlines()
    for line in lines[:count]:
        print(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…")
    if len(lines) > count:
        print(f"… {len(lines) - count} more lines")


if __name__ == "__main__":
    main()
