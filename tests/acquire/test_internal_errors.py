"""Defects of Thunder in the inference of a call are errors, which neither resolvers nor programs hide."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import InternalError
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.tracing import fake_tensors, outcome
from thunder_frontend.record import inferred_calls


def catches(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.sin()
    except Exception:
        return x


def _raise(*_: Any) -> Any:
    raise KeyError("defect")


@pytest.mark.parametrize(("module", "function"), [(fake_tensors, "channels_of"), (outcome, "view_base")])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_defect_is_raised_with_its_cause(
    module: Any, function: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inferred_calls, "_SHARED", BoundedCache(1))  # other tests have recorded the call
    monkeypatch.setattr(module, function, _raise)
    with pytest.raises(InternalError, match=r"sin.*KeyError: 'defect'") as raised:
        thunder.jit(catches, dynamic=dynamic)(torch.ones(3))
    assert isinstance(raised.value.__cause__, KeyError)
