"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from typing import Any

import pytest
from fake_transformer_engine import REAL
from pydantic import ValidationError

import thunder
from thunder_core.errors import ThunderError
from thunder_plugin_te.executor import from_options
from thunder_plugin_te.options import TeOptions
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_equal_options_are_one_executor() -> None:
    assert from_options(TeOptions(recipe="block")) is from_options(TeOptions(recipe="block"))
    assert from_options(TeOptions()) is not from_options(TeOptions(margin=1))


@pytest.mark.parametrize("options", [{"recipe": "tensorwise"}, {"least_tokens": 0}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TeOptions(**options)


@pytest.mark.skipif(REAL, reason="Transformer Engine is installed")
def test_without_the_library() -> None:
    with pytest.raises(ThunderError, match=r"transformer-engine.*not installed"):
        thunder.jit(lambda x: x, executors=["te"])
    program = thunder.jit(lambda x: x + 1, executors=[{"te": {"optional": True}}])
    assert program(1.0) == 2.0
