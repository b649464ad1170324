"""Symbolic sizes: time of steps, calls and acquisition, and number of compilations for several sizes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Final

from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

GROUP: Final = "symbolic sizes"
MODELS: Final = {
    "gpt-neox": "GPTNeoX of Hugging Face, 4 layers, 2x64",
    "pythia": "GPT of LitGPT as Pythia, 4 layers, 2x64",
}
EXECUTORS: Final = {"thunder[]": [], "thunder[inductor]": ["inductor"]}
SIZES: Final = [(2, 16), (3, 24), (2, 40), (4, 17), (2, 24), (5, 33), (3, 64), (8, 12)]
_LIMITS: Final = {"thunder[]": 1.02, "thunder[inductor]": 1.10}
_ACQUISITION: Final = 0.25
_CALL: Final = 7.0
_SYNTHETIC: Final = {"vocab": 512, "width": 128, "inner": 512, "layers": 4, "heads": 4}


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    return [
        *[_step(model, in_fresh_process(steps, threads=threads, model=model)) for model in MODELS],
        _acquisition(in_fresh_process(acquisition, threads=threads)),
        _call(in_fresh_process(calls, threads=threads)),
        *[
            _compilations(in_fresh_process(compilations, threads=threads, trained=trained), trained)
            for trained in (0, 1)
        ],
    ]


def _step(model: str, seconds: dict[str, float]) -> Row:
    """For each implementation, the time of a step with symbolic sizes divided by that with constant sizes."""
    names = ("compile", *EXECUTORS)
    ratios = {name: seconds[f"{name}, dynamic"] / seconds[name] for name in names}
    return Row(
        GROUP,
        f"training step with symbolic / constant sizes, {MODELS[model]}",
        "x",
        ratios,
        {},
        goal=f"reference <= {_LIMITS['thunder[]']}, inductor <= {_LIMITS['thunder[inductor]']}",
        reached=all(ratios[name] <= limit for name, limit in _LIMITS.items()),
        details={"seconds": seconds},
    )


def _acquisition(seconds: dict[str, float]) -> Row:
    value = seconds["dynamic"]
    what = "acquire Llama-2-7B with symbolic sizes, guards included, 1x512, meta, 8 layers"
    return Row(GROUP, what, "s", {"thunder": value}, {}, f"<= {_ACQUISITION} s", value <= _ACQUISITION, seconds)


def _call(seconds: dict[str, float]) -> Row:
    values = {name: second * 1e6 for name, second in seconds.items()}
    reached = reached_by_thunder({"thunder[]": values["thunder[], dynamic"]}, lambda value: value <= _CALL)
    return Row(
        GROUP, "cached call, relu(a*b+a).sum(), 4x4", "us", values, {}, f"with symbolic sizes <= {_CALL} us", reached
    )


def _compilations(counts: dict[str, float], trained: int) -> Row:
    what = f"compilations for {len(SIZES)} sizes of batch and sequence, {MODELS['pythia']}, "
    reached = counts["thunder[]"] <= 2 and counts["thunder[], dynamic"] <= 1
    return Row(
        GROUP, what + ("training" if trained else "forward"), "", counts, {}, "<= 2, with dynamic=True 1", reached
    )


def steps(model: str) -> dict[str, float]:
    """Median seconds of a training step with constant and with symbolic sizes, measured in alternation."""
    import copy

    import torch

    import thunder
    from benchmarks.timing import interleaved_medians

    torch.manual_seed(0)
    module = make(model)
    tokens = torch.randint(0, _SYNTHETIC["vocab"], (2, 64))
    models: dict[str, Any] = {}
    for suffix, dynamic in (("", False), (", dynamic", True)):
        models[f"compile{suffix}"] = torch.compile(copy.deepcopy(module), dynamic=dynamic)
        for name, executors in EXECUTORS.items():
            models[f"{name}{suffix}"] = thunder.jit(copy.deepcopy(module), dynamic=dynamic, executors=executors)

    def step(compiled: Any) -> list[torch.Tensor | None]:
        for parameter in compiled.parameters():
            parameter.grad = None
        _loss(compiled, tokens).backward()
        return [parameter.grad for parameter in compiled.parameters()]

    expected = step(module)
    for compiled in models.values():
        for _ in range(2):
            for one, other in zip(step(compiled), expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    return interleaved_medians({name: lambda compiled=compiled: step(compiled) for name, compiled in models.items()})


def make(model: str) -> Any:
    """A model in training mode with random weights, without dropout."""
    sizes = _SYNTHETIC
    if model == "gpt-neox":
        import transformers

        config = transformers.GPTNeoXConfig(
            vocab_size=sizes["vocab"],
            hidden_size=sizes["width"],
            intermediate_size=sizes["inner"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            max_position_embeddings=256,
            use_cache=False,
        )
        return transformers.GPTNeoXForCausalLM(config).train()
    import litgpt

    config = litgpt.Config.from_name(
        "pythia-14m",
        n_layer=sizes["layers"],
        n_embd=sizes["width"],
        intermediate_size=sizes["inner"],
        n_head=sizes["heads"],
        padded_vocab_size=sizes["vocab"],
        block_size=256,
    )
    return litgpt.GPT(config).train()


def _loss(model: Any, tokens: Any) -> Any:
    result = model(tokens)
    return getattr(result, "logits", result).square().mean()


def acquisition() -> dict[str, float]:
    """Seconds of acquisition with guards, with constant and symbolic sizes: the first, and the median of later ones."""
    import torch

    import thunder
    from benchmarks import programs
    from benchmarks.implementations import reported_stages

    model, arguments = programs.llama_7b_on_meta(8)
    times: dict[str, list[float]] = {"constants": [], "dynamic": []}
    for _ in range(6):
        for name, dynamic in (("constants", False), ("dynamic", True)):
            compiled = thunder.jit(model, dynamic=dynamic)
            with torch.no_grad():
                compiled(*arguments)
            stages = {stage: seconds for stage, seconds, _ in reported_stages(thunder.explain(compiled))}
            times[name].append(stages["acquisition"] + stages["prologue"])
    first = {f"{name}, first": seconds[0] for name, seconds in times.items()}
    return first | {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def calls() -> dict[str, float]:
    """Median seconds of a cached call of four operators, measured in alternation."""
    import torch

    import thunder
    from benchmarks import programs
    from benchmarks.timing import interleaved_medians

    program, arguments = programs.small_arithmetic()
    # Only one torch.compile: two for the same function would share a cache, and each call would check both entries.
    compiled: dict[str, Callable[..., Any]] = {
        "eager": program,
        "compile, dynamic": torch.compile(program, dynamic=True),
        "thunder[]": thunder.jit(program, executors=[]),
        "thunder[], dynamic": thunder.jit(program, executors=[], dynamic=True),
    }
    expected = program(*arguments)
    for function in compiled.values():
        torch.testing.assert_close(function(*arguments), expected)
    return interleaved_medians(
        {name: lambda function=function: function(*arguments) for name, function in compiled.items()}
    )


def compilations(trained: int) -> dict[str, float]:
    """Number of compilations for `SIZES`."""
    import copy

    import torch

    import thunder

    torch.manual_seed(0)
    model = make("pythia")
    graphs: list[Any] = []

    def backend(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        run: Callable[..., Any] = graph.forward
        return run

    models: dict[str, Any] = {
        "compile": torch.compile(copy.deepcopy(model), backend=backend),
        "thunder[]": thunder.jit(copy.deepcopy(model), executors=[]),
        "thunder[], dynamic": thunder.jit(copy.deepcopy(model), executors=[], dynamic=True),
    }
    for sizes in SIZES:
        tokens = torch.randint(0, _SYNTHETIC["vocab"], sizes)
        with torch.set_grad_enabled(bool(trained)):
            expected = model(tokens)
            for compiled in models.values():
                actual = compiled(tokens)
                torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)
                if trained:
                    actual.square().mean().backward()
    of_thunder = {name: float(thunder.cache_misses(one)) for name, one in models.items() if name != "compile"}
    return {"compile": float(len(graphs)), **of_thunder}
