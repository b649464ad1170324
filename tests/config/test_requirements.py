"""Whether required distributions are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.distributions import distribution
from thunder.config import check_config


@pytest.mark.parametrize(
    "requirement",
    [
        "torch",
        "torch>=2",
        "thunder-plugin-nvfuser>=0.1,<1",
        "Thunder_Plugin.NVFuser==0.3",
        "thunder-plugin-nvfuser[lib]",
        "absent; sys_platform == 'nowhere'",
        "absent; extra == 'some'",
        "thunder-plugin-early>=1",
        "thunder-plugin-early[all]",
    ],
)
def test_met(requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    distribution(tmp_path, "early", "2.0rc1", requires=["absent", "torch; extra == 'all'"], extras=["all"])
    assert check_config({"requires": [requirement]}) == []


@pytest.mark.parametrize(
    ("requirement", "told"),
    [
        ("absent", "absent is not installed; run: pip install 'absent'"),
        ("absent[a,b]>=1; python_version > '3'", "absent is not installed; run: pip install 'absent[a,b]>=1'"),
        (
            "thunder-plugin-nvfuser>=1",
            "thunder-plugin-nvfuser 0.3 is installed, not >=1; run: pip install 'thunder-plugin-nvfuser>=1'",
        ),
        (
            "thunder-plugin-nvfuser[gpu]",
            "thunder-plugin-nvfuser has no extra 'gpu'; run: pip install 'thunder-plugin-nvfuser[gpu]'",
        ),
        (
            "thunder-plugin-vendor[lib]",
            "for thunder-plugin-vendor[lib], a-vendor-library is not installed; "
            "run: pip install 'thunder-plugin-vendor[lib]'",
        ),
        ("torch @ https://example.org/torch.whl", "a URL cannot be checked; give a version"),
        ("thunder-plugin-odd[x]", "thunder-plugin-odd has a requirement that cannot be read, '>>>'; "
         "run: pip install 'thunder-plugin-odd[x]'"),
        ("thunder-plugin-odd>=1", "thunder-plugin-odd one is installed, not >=1; "
         "run: pip install 'thunder-plugin-odd>=1'"),
    ],
)  # fmt: skip
def test_unmet(requirement: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    distribution(tmp_path, "odd", "one", requires=[">>>"], extras=["x"])
    (problem,) = check_config({"requires": ["torch", requirement]})
    assert (problem.place, problem.text) == ("requires[1]", told)
