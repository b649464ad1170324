"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the tables of options in the README anew."""

from __future__ import annotations

from typing import Any

import pytest
from quantization_models import FILTERS

from thunder_plugin_quantization import Float8Training, Lora, Quantization, plugin
from thunder_testing import package_suite

pytestmark = [pytest.mark.filterwarnings(each) for each in FILTERS]

test_package = package_suite(__file__)


@pytest.mark.parametrize("transform", [Quantization, Lora, Float8Training])
def test_defaults_are_those_of_the_options(transform: Any) -> None:
    (spec,) = [each for each in plugin.thunder_transforms() if each.name == transform.name]
    assert transform.from_options(spec.options()) == transform()
