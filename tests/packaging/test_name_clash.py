"""`lightning-thunder` ships a package of the same name: an environment with both gets a warning that names it."""

from __future__ import annotations

import importlib.metadata

import pytest

import thunder
from thunder import _api


def test_lightning_thunder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.2.6")
    _api._warn_of_name_clash.cache_clear()
    with pytest.warns(UserWarning, match=r"lightning-thunder 0\.2\.6 is installed"):
        thunder.jit(lambda x: x)
    _api._warn_of_name_clash.cache_clear()


def test_nothing_is_said_without_it(recwarn: pytest.WarningsRecorder) -> None:
    _api._warn_of_name_clash.cache_clear()
    thunder.jit(lambda x: x)
    assert not recwarn.list
