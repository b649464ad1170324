"""The package as a plugin."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from dynamo_programs import MARKS

from thunder_plugin_dynamo import doctor
from thunder_testing import package_suite

pytestmark = MARKS

test_package = package_suite(__file__)


def test_the_check_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.backend_is_registered().ok
    others = (EntryPoint("thunder", "other:backend", doctor.GROUP),)
    monkeypatch.setattr(doctor, "entry_points", lambda **_: others)
    found = doctor.backend_is_registered()
    assert not found.ok
    assert "is other:backend" in found.text
    monkeypatch.setattr(doctor, "entry_points", lambda **_: ())
    assert "no backend" in doctor.backend_is_registered().text
