"""Text generation with Hugging Face models: time per token after a warm-up, and number of compilations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from benchmarks.process import in_fresh_process
from benchmarks.row import Row

CASES: Final = {
    "dynamic": "Llama of 4 layers, DynamicCache",
    "static": "Llama of 4 layers, StaticCache",
    "sliding": "Gemma3 of 4 layers, cache of full and sliding layers",
}
PROMPT: Final = 12
TOKENS: Final = 60
_ROUNDS: Final = 7
_COMPILATIONS: Final = 4


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    return [row for case in CASES for row in _rows(case, in_fresh_process(figures, threads=threads, case=case))]


def _rows(case: str, results: dict[str, dict[str, float]]) -> list[Row]:
    tokens = {name: seconds * 1e3 for name, seconds in results["seconds"].items()}
    counts = results["compilations"]
    of_thunder = [count for name, count in counts.items() if name.startswith("thunder")]
    return [
        Row(f"time per token, {TOKENS} tokens, greedy", CASES[case], "ms", tokens, {}),
        Row(
            f"compilations for {TOKENS} tokens",
            CASES[case],
            "",
            counts,
            {},
            goal=f"at most {_COMPILATIONS}",
            reached=max(of_thunder) <= _COMPILATIONS,
        ),
    ]


def figures(case: str) -> dict[str, dict[str, float]]:
    """Median seconds per token, and number of compilations for the first `TOKENS` tokens, by implementation."""
    import statistics
    import time

    import torch

    import thunder
    from benchmarks.timing import no_garbage_collection

    model = _model(case)
    graphs: list[Any] = []
    models: dict[str, Any] = {
        "eager": model,
        "torch.compile": _torch_compiled(copy.deepcopy(model), graphs),
        "thunder[]": thunder.jit(copy.deepcopy(model), executors=[]),
        "thunder[inductor]": thunder.jit(copy.deepcopy(model), executors=["inductor"]),
    }
    prompt = torch.randint(3, 1000, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    if case == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}

    def generate(name: str) -> Any:
        return models[name].generate(prompt, attention_mask=torch.ones_like(prompt), **options)

    compilations = {}
    for name in models:
        generate(name)
        if name == "torch.compile":
            compilations[name] = float(len(graphs))
        elif name != "eager":
            compilations[name] = float(thunder.cache_misses(models[name]))
    samples: dict[str, list[float]] = {name: [] for name in models}
    with no_garbage_collection():
        for _ in range(_ROUNDS):
            for name in models:
                start = time.perf_counter()
                generate(name)
                samples[name].append((time.perf_counter() - start) / TOKENS)
    return {
        "seconds": {name: statistics.median(seconds) for name, seconds in samples.items()},
        "compilations": compilations,
    }


def _torch_compiled(model: Any, graphs: list[Any]) -> Any:
    """The model with a forward that `torch.compile` compiles; each compiled graph is appended to ``graphs``."""
    import torch
    from torch._inductor.compile_fx import compile_fx

    def backend(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        compiled: Callable[..., Any] = compile_fx(graph, inputs)
        return compiled

    model.forward = torch.compile(model.forward, backend=backend)
    return model


def _model(case: str) -> Any:
    """A model with random weights, in evaluation mode."""
    import torch
    import transformers

    torch.manual_seed(0)
    options: dict[str, Any] = {
        "vocab_size": 1000,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if case == "sliding":
        config = transformers.Gemma3TextConfig(**options, head_dim=64, sliding_window=16)
        return transformers.Gemma3ForCausalLM(config).eval()
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**options)).eval()
