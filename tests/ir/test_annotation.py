"""Tests of reading the annotations of inputs."""

from __future__ import annotations

import pytest

from thunder_core.ir.annotation import StorageNumbers, read_input
from thunder_core.ir.proxy import NumberProxy


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_number_types_are_read(kind: type) -> None:
    assert read_input("x", kind.__name__, StorageNumbers()) == NumberProxy("x", kind)


@pytest.mark.parametrize("text", ["list", "object", "ValueError"])
def test_other_builtin_classes_are_not_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="is not an annotation"):
        read_input("x", text, StorageNumbers())
