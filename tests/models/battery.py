"""The cases that compare compiled models with eager ones, by name; run by pytest and by ``python -m tests.support``."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.models import hugging_face, lit_gpt
from tests.models.inputs import INPUTS, VOCABULARY, labels
from tests.models.training import check_training, distance_from_noise, next_token, own_loss
from tests.subjects import Compile, hit_counter
from thunder_testing import Arguments, Comparison, assert_same_behaviour
from thunder_testing.outcome import Outcome, outcome_of

Case = Callable[[Compile], None]
# Differentiated not only from a loss but from every output too.
EVERY_OUTPUT = ("bert", "gpt2", "llama", "t5", "vit", "resnet", "mixtral", "swin", "albert", "patchtst")
DECODED = ("gpt2", "llama", "gemma2", "t5", "mamba")
STEPS = 4
_EQUAL = Comparison()


def run_case(name: str, compile: Compile) -> Outcome:
    """The outcome of one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcome_of(functools.partial(CASES[name], compile), seconds=90)


def _forward(
    model: torch.nn.Module,
    inputs: Callable[[], dict[str, Any]],
    compile: Compile,
    calls: int = 2,
    comparison: Comparison = _EQUAL,
) -> None:
    """Evaluation without gradients, more than once on inputs of the same metadata."""
    with torch.no_grad():
        make = lambda: Arguments(**inputs())  # noqa: E731
        assert_same_behaviour(
            model, make, compile, rounds=calls, cache_hits=hit_counter(compile), comparison=comparison
        )


def _every_output(model: torch.nn.Module, inputs: Callable[[], dict[str, Any]], compile: Compile) -> None:
    """Training mode and a backward from all outputs at once, gradients accumulating over two calls."""
    comparison = Comparison(gradients=True)
    model.train()
    assert_same_behaviour(
        model, lambda: Arguments(**inputs()), compile, cache_hits=hit_counter(compile), comparison=comparison
    )


def _hugging_face(row: hugging_face.Row, how: Callable[..., None], compile: Compile) -> None:
    how(row.build(), INPUTS[row.inputs], compile)


def _hugging_face_training(
    row: hugging_face.Row, compile: Compile, training: bool = True, options: dict[str, Any] | None = None
) -> None:
    """The loss of the head if it takes labels, in training mode or else in evaluation mode; ``options`` configure."""

    def batch() -> dict[str, Any]:
        inputs = INPUTS[row.inputs]()
        return {**inputs, **labels(row.model, inputs)}

    objective = own_loss if "labels" in batch() else distance_from_noise
    check_training(row.build(**options or {}).train(training), objective, batch, compile, row.calls)


def _hugging_face_decode(row: hugging_face.Row, compile: Compile) -> None:
    """Prefill, then tokens one by one with the cache that the model returns."""
    model = row.build()
    outputs: list[Any] = []
    lengths = itertools.chain([5], itertools.repeat(1))

    def remember(_module: Any, _args: Any, output: Any) -> None:
        outputs.append(output)

    def inputs() -> Arguments:
        ids = torch.randint(5, VOCABULARY, (2, next(lengths)))
        arguments = {"decoder_input_ids": ids, "input_ids": ids + 1} if "T5" in row.model else {"input_ids": ids}
        for name in ("past_key_values", "cache_params"):
            if outputs and name in outputs[-1]:
                arguments[name] = outputs[-1][name]
        return Arguments(**arguments, use_cache=True)

    handle = None

    def compile_unhooked(twin: torch.nn.Module) -> Any:
        nonlocal handle
        handle = model.register_forward_hook(remember)  # on the original only; the twin is a copy made before
        return compile(twin)

    with torch.no_grad():
        assert_same_behaviour(model, inputs, compile_unhooked, rounds=STEPS, comparison=row.comparison)


def _lit_gpt_inputs() -> dict[str, Any]:
    return {"idx": torch.randint(0, VOCABULARY, (2, 8))}


def _lit_gpt(row: lit_gpt.Row, compile: Compile) -> None:
    _forward(row.build(), _lit_gpt_inputs, compile)


def _lit_gpt_training(row: lit_gpt.Row, compile: Compile) -> None:
    check_training(row.build().train(), next_token, _lit_gpt_inputs, compile)


def _lit_gpt_decode(row: lit_gpt.Row, compile: Compile) -> None:
    """Prefill into a key-value cache held in buffers, then tokens one by one at input positions."""
    model = row.build()
    model.set_kv_cache(batch_size=2)

    def steps() -> Iterator[Arguments]:
        yield Arguments(torch.randint(0, VOCABULARY, (2, 5)), torch.arange(5))
        for position in itertools.count(5):
            yield Arguments(torch.randint(0, VOCABULARY, (2, 1)), torch.tensor([position]))

    arguments = steps()
    compiled: list[Any] = []

    def compile_and_keep(twin: Any) -> Any:
        compiled.append(compile(twin))
        return compiled[0]

    with torch.no_grad():
        assert_same_behaviour(model, lambda: next(arguments), compile_and_keep, rounds=2 + STEPS)
    hits = hit_counter(compile)
    assert hits is None or hits(compiled[0]) >= STEPS, "decoding steps of the same shape missed the cache"


def _cases() -> Iterator[tuple[str, Case]]:
    for name, lit_row in lit_gpt.ROWS.items():
        yield f"litgpt/{name}", functools.partial(_lit_gpt, lit_row)
        yield f"litgpt/{name}/training", functools.partial(_lit_gpt_training, lit_row)
        yield f"litgpt/{name}/decode", functools.partial(_lit_gpt_decode, lit_row)
    for name, row in hugging_face.ROWS.items():
        yield (
            f"transformers/{name}",
            functools.partial(
                _hugging_face, row, functools.partial(_forward, calls=row.calls, comparison=row.comparison)
            ),
        )
        yield f"transformers/{name}/training", functools.partial(_hugging_face_training, row)
        if "training" in row.may_refuse and "forward" not in row.may_refuse:
            without_dropout = functools.partial(_hugging_face_training, row, training=False)
            yield f"transformers/{name}/training in evaluation mode", without_dropout
            every_layer = functools.partial(_hugging_face_training, row, options=hugging_face.EVERY_LAYER)
            yield f"transformers/{name}/training of every layer", every_layer
        if name in EVERY_OUTPUT:
            yield (
                f"transformers/{name}/training from every output",
                functools.partial(_hugging_face, row, _every_output),
            )
        if name in DECODED:
            yield f"transformers/{name}/decode", functools.partial(_hugging_face_decode, row)


CASES: dict[str, Case] = dict(_cases())
MAY_REFUSE = frozenset(
    f"{family}/{name}" if case == "forward" else f"{family}/{name}/{case}"
    for family, rows in (("litgpt", lit_gpt.ROWS), ("transformers", hugging_face.ROWS))
    for name, row in rows.items()  # type: ignore[attr-defined]
    for case in row.may_refuse
)
"""Cases that a DataDependentError is a right answer to."""
