"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from typing import Any

import pytest

import thunder
from thunder_core.errors import ConfigError
from thunder_plugin_sdpa.executor import from_options
from thunder_plugin_sdpa.options import SdpaOptions
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_equal_options_are_one_executor() -> None:
    assert from_options(SdpaOptions(backends=("flash",))) is from_options(SdpaOptions(backends=("flash",)))
    assert from_options(SdpaOptions()) is not from_options(SdpaOptions(grouped=False))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"backends": ["flsh"]}, "did you mean 'flash'"), ({"backends": []}, "backends: must have at least 1, not 0")],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        thunder.jit(lambda x: x, executors=[{"sdpa": options}])
