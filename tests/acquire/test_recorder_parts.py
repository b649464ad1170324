"""The parts of a recorder, without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.generators import NEW_GENERATOR
from thunder_core.tracing.fake_tensors import ObservingFakeMode
from thunder_frontend.observe.torch_generators import TorchGenerators
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.open_trace import OpenTrace, Region
from thunder_frontend.record.tensors import Suspension, Tensors
from thunder_frontend.record.traced_tensor import Variable

_SYMBOL = Symbol("report", print)


@dataclass(frozen=True)
class Path:
    text: str

    def describe(self) -> str:
        return self.text


class Parts:
    """Inputs are called ``a0``, ``a1``, ... in the order of ``values``; no path leads to other objects."""

    def __init__(self, *values: Any) -> None:
        paths = {id(value): Path(f"a{index}") for index, value in enumerate(values)}
        mode = ObservingFakeMode()
        self.trace = OpenTrace()
        self.inputs = Inputs(self.trace, mode, TorchGenerators(), lambda value: paths.get(id(value)), lambda _: None)
        self.suspension = Suspension()
        self.tensors = Tensors(self.trace, self.inputs, mode, self.suspension)

    def computed(self) -> torch.Tensor:
        """A traced tensor with a new storage."""
        name, storage = self.trace.names.intermediate(), self.trace.storages.new()
        proxy = TensorProxy(name, (2,), (1,), torch.float32, torch.device("cpu"), False, storage)
        return self.tensors.traced(Variable(proxy))


def test_lines_have_the_modes_that_differ_from_those_of_the_program() -> None:
    trace = OpenTrace()
    trace.write(_SYMBOL, (1,), {})
    with torch.no_grad():
        trace.write(_SYMBOL, (2,), {}, effects=Effects(external=True))
    first, second = trace.ops
    assert first.context is None
    assert first.effects.pure
    assert second.context is not None
    assert not second.context.grad_enabled
    assert second.location is not None
    assert second.location.function.endswith(test_lines_have_the_modes_that_differ_from_those_of_the_program.__name__)


def test_regions_nest() -> None:
    parts = Parts()
    outer, inner = Region(parts.trace, parts.tensors), Region(parts.trace, parts.tensors)
    program = parts.trace.ops
    with outer.recording():
        with inner.recording():
            assert [id(lines) for lines in parts.trace.outwards()] == [id(inner.ops), id(outer.ops), id(program)]
            parts.trace.write(_SYMBOL, (), {})
        assert parts.trace.outwards()[0] is outer.ops
    assert parts.trace.ops is program
    assert not parts.trace.outer_ops
    assert (len(inner.ops), len(outer.ops), len(program)) == (1, 0, 0)
    assert not parts.trace.is_region_cut


def test_an_exception_cuts_a_region() -> None:
    parts = Parts()
    with pytest.raises(KeyError), Region(parts.trace, parts.tensors).recording():
        raise KeyError
    assert parts.trace.is_region_cut
    assert not parts.trace.outer_ops


def test_a_generator_that_a_region_makes_is_a_line_of_the_program() -> None:
    parts = Parts()
    program = parts.trace.ops
    region = Region(parts.trace, parts.tensors)
    with region.recording():
        generator = torch.Generator()
        proxy = parts.inputs.object(generator)
        assert parts.inputs.object(generator) == proxy
    assert [line.symbol for line in program] == [NEW_GENERATOR]
    assert program[0].output == proxy
    assert region.ops == []
    assert parts.inputs.proxies == []


def test_real_tensors_become_inputs_when_they_are_met() -> None:
    x, y = torch.ones(2), torch.ones(2)
    parts = Parts(x, y)
    assert parts.tensors.find(x) is None
    assert parts.inputs.proxies == []
    call = CallArguments(parts.inputs, (x, [x, 2.0]), {"other": y})
    one, other = parts.tensors.proxy_of(x), parts.tensors.proxy_of(y)
    assert call.args == (one, [one, 2.0])
    assert call.kwargs == {"other": other}
    assert [proxy.name for proxy in parts.inputs.proxies] == ["a0", "a1"]
    assert parts.tensors.find(x) is parts.tensors.variable(x)
    assert list(parts.tensors.objects()) == [(x, parts.tensors.variable(x)), (y, parts.tensors.variable(y))]


def test_a_tensor_that_is_written_has_another_name() -> None:
    x = torch.ones(2)
    parts = Parts(x)
    variable = parts.tensors.variable(x)
    before, key = variable.proxy, variable.key
    after = parts.tensors.rename(variable, requires_grad=True)
    assert (before.name, after.name) == ("a0", "t0")
    assert after.storage == before.storage
    assert parts.tensors.proxy_of(x) == after
    assert variable.key != key
    assert parts.tensors.renamed == [(variable, before)]
    assert parts.inputs.object_proxy(x) == before


def test_traced_tensors_are_not_kept_alive() -> None:
    parts = Parts()
    first, second = parts.computed(), parts.computed()
    assert [id(tensor) for tensor in parts.tensors.alive()] == [id(first), id(second)]
    assert [id(tensor) for tensor in parts.tensors.alive(1)] == [id(second)]
    del first
    assert len(parts.tensors.alive()) == 1
    parts.tensors.close()
    assert parts.tensors.alive() == []
    assert parts.tensors.created == []


def test_suspensions_nest() -> None:
    suspension = Suspension()
    with suspension:
        with pytest.raises(KeyError), suspension:
            raise KeyError
        assert suspension.active
    assert not suspension.active
