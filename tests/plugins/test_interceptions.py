"""Interceptions that plugins offer."""

from __future__ import annotations

import sys

import pytest
import torch

import thunder
from tests.plugins import operations
from tests.plugins.conftest import Site, record
from thunder_core.errors import PluginError
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import TransformSpec
from thunder_core.plugins.states import PluginState
from thunder_frontend.record import interceptions

PLUGIN = """
from thunder_core.plugins import *

@hookimpl
def thunder_transforms():
    return [TransformSpec("alpha", "{module}:make")]

@hookimpl
def thunder_interceptions():
    return [InterceptionsSpec("TABLE:ROWS")]

def make(options=None):
    return "the transform"
"""
TABLE = """
from tests.plugins import operations
from thunder_frontend.record.interception import Interception

def launched(recorder, original, x):
    return x + 40

ROWS = [Interception(operations, "launch", launched, "it launches a kernel")]
"""


@pytest.fixture(autouse=True)
def only_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tests add are for these tests."""
    monkeypatch.setattr(interceptions, "_added", [])


def _use(site: Site, table: str) -> str:
    module = site.module(table)
    site.plugin("alpha", PLUGIN.replace("TABLE", module))
    assert module not in sys.modules
    for _ in range(2):
        assert host().import_object(find(TransformSpec, "alpha"))() == "the transform"
    return module


def test_an_interception_acts_while_a_program_is_recorded(site: Site) -> None:
    launch, code = operations.launch, operations.launch.__code__
    _use(site, TABLE)
    function = thunder.jit(lambda x: operations.launch(x) * 2)
    assert function(torch.ones(1)).item() == 82.0
    assert operations.launch is launch
    assert launch.__code__ is code
    with pytest.raises(RuntimeError, match="a kernel"):
        operations.launch(torch.ones(1))


def test_it_is_removed_after_a_program_that_raises(site: Site) -> None:
    code = operations.launch.__code__
    _use(site, TABLE)

    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"after {operations.launch(x).shape}")

    with pytest.raises(ValueError, match="after"):
        thunder.jit(program)(torch.ones(1))
    assert operations.launch.__code__ is code


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.replace('operations, "launch"', 'operations, "land"'), "there is no such attribute"),
        (TABLE.replace('operations, "launch"', "__import__('torch'), \"cond\""), "torch.cond is already intercepted"),
        ("ROWS = ['launch']", "holds str, and not only Interception"),
        ("1 / 0", "its table of interceptions cannot be added: ZeroDivisionError: division by zero"),
    ],
)
def test_interceptions_that_cannot_be_added(site: Site, table: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        _use(site, table)
    assert record("alpha").state is PluginState.FAILED
    assert interceptions._added == []
