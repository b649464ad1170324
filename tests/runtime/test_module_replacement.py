"""A compiled module takes the place of its original: class, signature, methods; the original goes on in eager."""

from __future__ import annotations

import abc
import copy
import functools
import gc
import inspect
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import thunder
from tests.runtime.young_heap import young_heap
from tests.subjects import SUBJECT, eager

pytestmark = pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules")


class Base(nn.Module):
    """Registers its subclasses."""

    registry: list[type] = []  # noqa: RUF012

    def __init_subclass__(cls, **options: Any) -> None:
        Base.registry.append(cls)
        super().__init_subclass__(**options)


class Model(Base):
    """With methods that call forward."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(size, size)
        self.__secret = 3
        self._compiled = "mine"
        self._original = "mine too"

    @property
    def scale(self) -> float:
        return self._scale if hasattr(self, "_scale") else 1.0

    @scale.setter
    def scale(self, value: float) -> None:
        self._scale = value

    def forward(self, x: torch.Tensor, y: Any = None, *, factor: float = 1.0) -> torch.Tensor:
        return torch.relu(self.layer(x)) * self.__secret * self.scale * factor

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).sum()

    def other_loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x, factor=2.0).sum()

    def secret(self) -> int:
        return self.__secret

    def another(self) -> Any:
        return type(self)(3)

    @classmethod
    def make(cls) -> Any:
        return cls(5)


class Derived(Model):
    """Calls what it overrides."""

    def forward(self, x: torch.Tensor, y: Any = None, *, factor: float = 1.0) -> torch.Tensor:
        return super().forward(x, factor=factor) + 1

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return super().loss(x) * 2


@pytest.fixture(params=[Model, Derived])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param()


@pytest.fixture
def compiled(model: Any, jit: Callable[..., Any]) -> Any:
    return jit(model)


def x() -> torch.Tensor:
    return torch.randn(2, 4)


def test_class_and_signatures(compiled: Any, model: Any) -> None:
    kind = type(model)
    assert isinstance(compiled, kind)
    assert compiled.__class__ is kind
    assert type(compiled) == kind  # noqa: E721  equal, not the same
    assert hash(type(compiled)) == hash(kind)
    assert isinstance(model, type(compiled))
    assert issubclass(type(compiled), Model)
    assert type(compiled).__name__ == kind.__name__
    assert inspect.signature(compiled) == inspect.signature(model)
    assert inspect.signature(compiled.forward) == inspect.signature(model.forward)
    assert inspect.signature(type(compiled)) == inspect.signature(kind)
    assert inspect.ismethod(compiled.forward)
    assert compiled.forward.__self__ is compiled
    assert compiled.forward == compiled.forward or compiled.forward.__wrapped__ is kind.forward
    assert inspect.getsource(compiled.forward) == inspect.getsource(model.forward)
    assert type(compiled).forward is kind.forward


def test_methods_run_the_compiled_forward(compiled: Any, model: Any) -> None:
    value = x()
    assert torch.equal(compiled.loss(value), model.loss(value))
    assert torch.equal(compiled.other_loss(value), model.other_loss(value))
    assert thunder.cache_misses(compiled) == 2
    assert torch.equal(compiled.other_loss(value), model.other_loss(value))
    assert torch.equal(compiled.forward(value), model(value))
    assert thunder.cache_hits(compiled) == 2
    model(value)
    model.loss(value)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 2)


def test_private_names_properties_and_constructors(compiled: Any, model: Any) -> None:
    assert compiled.secret() == 3
    assert (compiled._compiled, compiled._original) == ("mine", "mine too")
    compiled.scale = 3.0
    assert model.scale == 3.0
    value = x()
    assert torch.equal(compiled(value), model(value))
    assert type(compiled.another()) is type(model)
    assert type(compiled.make()) is type(model)
    assert set(Base.registry) == {Model, Derived}


def test_original(compiled: Any, model: Any, jit: Callable[..., Any]) -> None:
    assert thunder.original(compiled) is model
    assert thunder.original(jit(compiled)) is model
    assert thunder.original(compiled.forward) == model.forward
    assert thunder.original(compiled.loss) == model.loss
    assert thunder.original(jit(torch.sin)) is torch.sin
    for value in (model, torch.sin, 3):
        with pytest.raises(thunder.OptionError, match=r"not returned by thunder\.jit"):
            thunder.original(value)


def test_equals_its_original(compiled: Any, model: Any, jit: Callable[..., Any]) -> None:
    assert compiled == model
    assert model == compiled
    assert compiled != jit(Model())
    names = {module: name for name, module in compiled.named_modules()}
    seen = []
    for module in compiled.modules():
        module.register_forward_hook(lambda module, args, output: seen.append(names[module]))
    compiled(x())
    assert seen == ["layer", ""]


def test_forward_runs_without_the_hooks_of_calls(compiled: Any, model: Any) -> None:
    seen: list[Any] = []
    compiled.register_forward_hook(lambda module, args, output: seen.append(0))
    value = x()
    for _ in range(2):
        assert torch.equal(compiled.forward(value), model.forward(value))
    assert seen == []
    assert thunder.cache_hits(compiled.forward) == 1
    assert thunder.cache_misses(compiled) == 0
    compiled(value)
    assert seen == [0]


def test_copies_and_pickles(compiled: Any, model: Any) -> None:
    value = x()
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(twin) == type(compiled)  # noqa: E721  equal, not the same
        assert torch.equal(twin.loss(value), model.loss(value))
        assert thunder.cache_misses(twin) == 1
        assert twin.layer.weight is not model.layer.weight
    shallow = copy.copy(compiled)
    assert thunder.original(shallow) is not model
    assert shallow.layer is model.layer
    shallow.scale = 5.0
    assert model.scale == 1.0


@young_heap()
def test_nothing_outlives_it(jit: Callable[..., Any]) -> None:
    model = Model()
    compiled = jit(model)
    compiled.loss(x())
    gc.collect()
    watched = [weakref.ref(model), weakref.ref(compiled)]
    gc.disable()
    try:
        del model, compiled
        assert [reference() for reference in watched] == [None, None]
    finally:
        gc.enable()


def autocast_wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("by_function", [True, False])
def test_wrapped_forward_is_compiled_with_its_wrapper(compiled: Any, model: Any, by_function: bool) -> None:
    value = x()
    compiled(value)
    before = compiled.forward
    if by_function:
        compiled.forward = types.MethodType(autocast_wrapped(compiled.forward.__func__), compiled)
    else:
        compiled.forward = autocast_wrapped(compiled.forward)
    with torch.autocast("cpu", torch.bfloat16):
        expected = type(model).forward(model, value)
    assert torch.equal(compiled(value), expected)
    assert torch.equal(compiled.forward(value), expected)
    assert torch.equal(compiled.loss(value), model.loss(value))
    assert thunder.cache_misses(compiled) == 2
    assert torch.equal(model(value), expected)
    assert "autocast" in str(thunder.last_traces(compiled)[0]) or expected.dtype is torch.float32
    assert list(inspect.signature(compiled.forward).parameters) == ["x", "y", "factor"]
    assert torch.equal(before(value), type(model).forward(model, value))
    compiled.forward = before
    assert "forward" not in vars(model)
    assert torch.equal(compiled(value), model(value))


def test_forward_assigned_to_the_class(jit: Callable[..., Any]) -> None:
    class Patched(Model):
        pass

    compiled, value = jit(Patched()), x()
    compiled(value)
    type(compiled).forward = lambda self, x: x * 5
    assert torch.equal(compiled(value), value * 5)
    assert torch.equal(Patched()(value), value * 5)


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


@pytest.mark.parametrize("through_compiled", [True, False])
@pytest.mark.parametrize("kind", ["own", "weight_norm", "spectral_norm"])
def test_parametrizations(through_compiled: bool, kind: str, jit: Callable[..., Any]) -> None:
    model, value = nn.Linear(4, 4).eval(), x()
    compiled = jit(model)
    compiled(value)
    target = compiled if through_compiled else model
    if kind == "own":
        parametrize.register_parametrization(target, "weight", Symmetric())
    else:
        getattr(parametrizations, kind)(target)
    assert torch.equal(compiled(value), model(value))
    assert torch.equal(compiled.weight, model.weight)
    assert type(compiled) == type(model)  # noqa: E721  equal, not the same
    assert parametrize.is_parametrized(compiled)
    assert torch.equal(copy.deepcopy(compiled)(value), model(value))
    parametrize.remove_parametrizations(target, "weight")
    assert torch.equal(compiled(value), model(value))
    assert compiled.weight is model.weight


class Slotted(nn.Module):
    __slots__ = ("factor",)

    def __init__(self) -> None:
        super().__init__()
        self.factor = 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_slots_are_shared(jit: Callable[..., Any]) -> None:
    model, value = Slotted(), x()
    compiled = jit(model)
    assert torch.equal(compiled(value), value * 3)
    compiled.factor = 4.0
    assert model.factor == 4.0
    assert torch.equal(compiled(value), value * 4)
    del compiled.factor
    assert not hasattr(model, "factor")


class Counting(Slotted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.factor += 1
        return x * self.factor


def test_writes_to_slots_of_modules_are_replayed(jit: Callable[..., Any]) -> None:
    model, other, value = Counting(), Counting(), x()
    compiled = jit(model)
    for _ in range(3):
        assert torch.equal(compiled(value), other(value))
        assert compiled.factor == model.factor == other.factor


class Abstract(nn.Module, abc.ABC):
    @abc.abstractmethod
    def forward(self, x: torch.Tensor) -> torch.Tensor: ...


class Concrete(Abstract):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Meta(type):
    made: list[str] = []  # noqa: RUF012

    def __new__(cls, name: str, bases: Any, namespace: Any, *, tag: str) -> Any:
        Meta.made.append(name)
        return super().__new__(cls, name, bases, namespace)

    def __init__(cls, name: str, bases: Any, namespace: Any, *, tag: str) -> None:
        super().__init__(name, bases, namespace)


class Tagged(nn.Module, metaclass=Meta, tag="demanded"):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


T = TypeVar("T")


class Parametric(nn.Module, Generic[T]):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 3


@pytest.mark.parametrize("kind", [Concrete, Tagged, Parametric[int]])
def test_metaclasses(kind: Any, jit: Callable[..., Any]) -> None:
    model, value = kind(), x()
    compiled = jit(model)
    assert torch.equal(compiled(value), model(value))
    assert isinstance(compiled, type(model))
    assert not isinstance(compiled, nn.Linear)
    assert isinstance(compiled, Abstract) == isinstance(model, Abstract)
    assert Meta.made == ["Tagged"]


class Delegating(nn.Module):
    """Finds attributes in another module; a container and a context besides."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Model()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base, name)

    def __call__(self, x: torch.Tensor) -> Any:
        return super().__call__(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x)

    def __len__(self) -> int:
        return 7

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def test_special_methods_are_the_originals(jit: Callable[..., Any]) -> None:
    model, value = Delegating(), x()
    compiled = jit(model)
    assert compiled.secret() == 3
    assert len(compiled) == 7
    with compiled as entered:
        assert entered is compiled
    assert torch.equal(compiled(value), model(value))
    assert torch.equal(compiled.forward(value), model.forward(value))
    assert inspect.signature(compiled) == inspect.signature(model)
    assert inspect.signature(jit(Model())) == inspect.signature(Model())


class Dictionary(dict[str, Any], nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)


def test_modules_with_builtin_content_are_refused(jit: Callable[..., Any]) -> None:
    with pytest.raises(thunder.UnsupportedError, match="both a module and a dict"):
        jit(Dictionary())


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = thunder.jit(Model())
        self.layers = nn.ModuleList([thunder.jit(nn.Linear(4, 4)), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for layer in self.layers:
            x = layer(x)
        return x + self.inner.loss(x)


def test_compiled_modules_inside(jit: Callable[..., Any]) -> None:
    model, value = Outer(), x()
    compiled = jit(model)

    def check(misses: int) -> None:
        for _ in range(2):
            assert torch.equal(compiled(value), model(value))
        assert thunder.cache_misses(compiled) == misses

    check(1)
    model.inner.scale = 7.0
    check(2)
    model.layers[0] = nn.Linear(4, 4, bias=False)
    check(3)
    model.layers[0] = jit(nn.Linear(4, 4, bias=False))
    check(4)
    model.inner = Model()
    check(5)


def test_compiled_module_in_a_compiled_function(jit: Callable[..., Any]) -> None:
    inner, value = jit(Model()), x()

    def program(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + inner.loss(x) + inner.layer.weight.sum()

    compiled = jit(program)
    for _ in range(2):
        assert torch.equal(compiled(value), program(value))
    assert thunder.cache_hits(compiled) == 1
    inner.scale = 2.0
    assert torch.equal(compiled(value), program(value))


def test_functional_call(compiled: Any, model: Any, jit: Callable[..., Any]) -> None:
    value = x()
    parameters = {name: (parameter * 2).detach() for name, parameter in model.named_parameters()}
    expected = torch.func.functional_call(model, parameters, (value,))
    assert torch.equal(torch.func.functional_call(compiled, parameters, (value,)), expected)
    inside = jit(lambda parameters, value: torch.func.functional_call(compiled, parameters, (value,)))
    assert torch.equal(inside(parameters, value), expected)


def test_graph_modules_generate_their_code_again(jit: Callable[..., Any]) -> None:
    model, value = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), x()
    compiled = jit(model)
    assert torch.equal(compiled(value), model(value))
    with compiled.graph.inserting_before(next(node for node in compiled.graph.nodes if node.op == "output")) as _:
        output = next(node for node in compiled.graph.nodes if node.op == "output")
        output.args = (compiled.graph.call_function(torch.sigmoid, (output.args[0],)),)
    compiled.recompile()
    assert "sigmoid" in compiled.code
    assert torch.equal(compiled(value), model(value))
    assert model(value).min() >= 0.5
    assert torch.equal(copy.deepcopy(compiled)(value), model(value))
