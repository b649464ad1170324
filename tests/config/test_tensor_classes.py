"""The list `tensor_classes`: what records programs with wrapper subclasses."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import thunder
from thunder.config import check_config, resolve_config, settings_of, to_yaml
from thunder_core.errors import ConfigError, PluginError, UnsupportedError
from thunder_frontend.record.tensor_classes import RefusedCalls, RefusedClasses, TensorClasses, WrapperCalls


class Noted(TensorClasses):
    """Refuses wrappers, and notes that recordings began."""

    def __init__(self, name: str = "noted") -> None:
        self.name = name
        self.recordings: list[Any] = []

    def supports_class(self, kind: type) -> type:
        return torch.Tensor

    def start(self, recorder: Any, observer: Any) -> WrapperCalls:
        self.recordings.append(type(recorder).__name__)
        return RefusedCalls()


def identity(x: Any) -> Any:
    return x


def double(x: Any) -> Any:
    return x * 2


def test_those_that_can_be_used_start_with_each_recording() -> None:
    noted, second = Noted(), Noted("second")
    compiled = thunder.jit(double, tensor_classes=[{"nowhere.classes": {"optional": True}}, noted, second])
    assert compiled(3) == 6
    assert noted.recordings == second.recordings == ["Recorder"]


def test_a_later_list_replaces_the_one_below() -> None:
    Path("c.yaml").write_text("tensor_classes: [{nowhere.classes: {optional: true}}]\n")
    assert [entry.name for entry in resolve_config("c.yaml").tensor_classes] == ["nowhere.classes"]
    assert resolve_config("c.yaml", tensor_classes=[]).tensor_classes == ()


def test_without_one_the_settings_are_equal_to_others_without() -> None:
    settings = settings_of(tensor_classes=[])
    assert settings.wrapper_classes == RefusedClasses()
    assert settings == settings_of(tensor_classes=[]) == copy.deepcopy(settings) == pickle.loads(pickle.dumps(settings))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["nowhere.classes"], "there is no plugin 'nowhere'"),
        (["fast"], "there is no support of tensor classes 'fast'"),
        ([3], "must be the name of a support of tensor classes"),
        ("subclasses", "must be a list"),
        ([{"subclasses.wrappers": {"optionl": True}}], "optionl: unknown option; did you mean 'optional'"),
    ],
    ids=["no plugin", "an executor", "a number", "text", "option"],
)
def test_errors_name_their_position(classes: Any, message: str) -> None:
    (problem,) = check_config({"tensor_classes": classes})
    assert problem.place.startswith("tensor_classes")
    assert message in str(problem)
    with pytest.raises(ConfigError, match="tensor_classes"):
        thunder.jit(identity, tensor_classes=classes)


def test_a_plugin_must_return_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wrappers = pytest.importorskip("thunder_plugin_subclasses").Wrappers
    monkeypatch.setattr(wrappers, "from_options", lambda options: object())
    with pytest.raises(PluginError, match=r"the support of tensor classes 'wrappers' .* must return a TensorClasses"):
        thunder.jit(identity, tensor_classes=["subclasses.wrappers"])


def test_one_that_was_made_in_python_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match=r"tensor_classes\[0\]: 'noted' is a Python object; a file has names only"):
        to_yaml(resolve_config(tensor_classes=[Noted()]))


def test_what_is_left_out_is_among_the_advice() -> None:
    compiled = thunder.jit(double, tensor_classes=[{"nowhere.classes": {"optional": True}}])
    with pytest.raises(UnsupportedError, match=r"an argument of mul is of the class .*TwoTensor") as caught:
        compiled(TwoTensor(torch.ones(2), torch.ones(2)))
    assert any("there is no plugin 'nowhere'" in advice for advice in caught.value.advice)
    assert ("nowhere.classes", "there is no plugin 'nowhere'") in [
        (name, why) for name, why in settings_of(tensor_classes=[{"nowhere.classes": {"optional": True}}]).left_out
    ]


def test_the_reason_of_a_failed_creation_is_among_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    wrappers = pytest.importorskip("thunder_plugin_subclasses").Wrappers
    monkeypatch.setattr(wrappers, "from_options", fail)
    compiled = thunder.jit(double, tensor_classes=[{"subclasses.wrappers": {"optional": True}}])
    with pytest.raises(UnsupportedError, match=r"an argument of mul is of the class .*TwoTensor") as caught:
        compiled(TwoTensor(torch.ones(2), torch.ones(2)))
    assert any("could not be created: ZeroDivisionError" in advice for advice in caught.value.advice)
    assert "" not in caught.value.advice
