"""The package as a plugin."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

import pytest

import thunder_plugin_matmul
from thunder_core.plugins import TransformSpec
from thunder_plugin_matmul import plugin
from thunder_testing import package_suite

test_package = package_suite(__file__)


@pytest.mark.parametrize("spec", plugin.thunder_transforms(), ids=lambda spec: spec.name)
def test_specifications(spec: TransformSpec) -> None:
    module, _, name = spec.load.partition(":")
    transform = attrgetter(name)(import_module(module))(spec.options())
    assert spec.name == transform.name
    assert type(transform).__name__ in thunder_plugin_matmul.__all__


def test_what_the_package_exports() -> None:
    for name in thunder_plugin_matmul.__all__:
        assert getattr(thunder_plugin_matmul, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Products'"):
        _ = thunder_plugin_matmul.Products
