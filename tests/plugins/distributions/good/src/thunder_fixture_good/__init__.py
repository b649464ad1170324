"""Offers one of everything. Importing it imports neither PyTorch nor the rest of this package."""

from thunder_core.plugins import (
    CheckSpec,
    ExecutorOptions,
    ExecutorSpec,
    Preset,
    SymbolsSpec,
    TransformOptions,
    TransformSpec,
    hookimpl,
)


class Options(ExecutorOptions):
    """Of the executor."""

    largest: int = 1 << 20
    """Tensors with more elements are declined."""


@hookimpl
def thunder_executors():
    return [ExecutorSpec("good", "thunder_fixture_good.executor:make", Options, "doubles")]


@hookimpl
def thunder_transforms():
    return [TransformSpec("count_lines", "thunder_fixture_good.transform:make", TransformOptions, "counts lines")]


@hookimpl
def thunder_symbols():
    return [SymbolsSpec("thunder_fixture_good.operations:ROWS")]


@hookimpl
def thunder_presets():
    return [Preset("good_preset", "thunder_fixture_good", "preset.yaml", "the executor alone")]


@hookimpl
def thunder_doctor():
    return [CheckSpec("doubling", "thunder_fixture_good.check:run")]
