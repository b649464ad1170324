"""Compiled programs of `torch.export` compute what their modules do: values, gradients, writes and random numbers."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from comparison import compare
from exported_programs import PROGRAMS, exported

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program(name: str) -> None:
    compare(*exported(name))


_WITHOUT_BACKWARD = {"batch_norm", "mutated_buffers", "view_then_write"}
"""Programs that PyTorch cannot differentiate after their decomposition."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_decomposed_program(name: str) -> None:
    program, args, kwargs = exported(name)
    with torch.set_grad_enabled(name not in _WITHOUT_BACKWARD):
        compare(program.run_decompositions(), args, kwargs)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program_without_gradients(name: str) -> None:
    with torch.no_grad():
        compare(*exported(name))


@pytest.mark.parametrize("name", ["mlp", "mutated_buffers", "mutated_input", "integers", "autocast", "dropout"])
@pytest.mark.slow
def test_loaded_program(name: str) -> None:
    program, args, kwargs = exported(name)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the format
        torch.export.save(program, file)
        file.seek(0)
        loaded: Any = torch.export.load(file)
    compare(loaded, args, kwargs)
