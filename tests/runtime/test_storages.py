"""Storages that a program makes: memory of Python's, beside that of the tensors that are recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
BYTES = bytes([0, 1, 2, 3, 4, 5, 16, 64])


def test_questions_to_storages() -> None:
    def program(x: torch.Tensor) -> Any:
        bools = torch.BoolStorage.from_buffer(BYTES, "big")
        raw = torch.UntypedStorage.from_buffer(BYTES, dtype=torch.uint8)
        sized = torch.UntypedStorage(6)
        asked = isinstance(bools, torch.BoolStorage), bools.dtype, bools.device.type, len(bools)
        return x + raw.nbytes(), asked, raw.device.type, sized.device.type, sized.nbytes(), type(sized)

    compiled = thunder.jit(program)
    for _ in range(2):
        assert compiled(torch.zeros(())) == program(torch.zeros(()))
    assert thunder.cache_hits(compiled) == 1


def test_a_storage_that_each_call_makes() -> None:
    compiled = thunder.jit(lambda x: (x + 1, torch.UntypedStorage.from_buffer(BYTES, dtype=torch.uint8)))
    with pytest.warns(UncacheableWarning, match="returns or stores a storage that it creates"):
        made = [compiled(torch.ones(2))[1] for _ in range(3)]
    assert all(bytes(storage.tolist()) == BYTES for storage in made)
    assert len({storage.data_ptr() for storage in made}) == 3


def test_a_tensor_in_a_storage_that_the_program_makes_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        storage = torch.UntypedStorage.from_buffer(BYTES, dtype=torch.uint8)
        return x + torch.empty(0, dtype=torch.uint8).set_(storage)

    with pytest.raises(UnsupportedError, match="gives a tensor another storage"):
        thunder.jit(program)(torch.ones(8))
