"""A compiled module is a module: same parameters and state, copies, pickles, is collected."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import operator
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from tests.runtime.young_heap import young_heap
from tests.subjects import SUBJECT, eager
from thunder_core.errors import UncompiledWarning

pytestmark = pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules")


class Model(nn.Module):
    """Two layers, a buffer, an attribute and a method besides forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
        self.register_buffer("steps", torch.zeros(()))
        self.scale = 2.0

    def forward(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        self.steps += 1
        return self.second(self.first(x)) * self.scale + shift

    def describe(self) -> str:
        return f"scale {self.scale}"


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def compiled(model: Model, jit: Callable[..., Any]) -> Any:
    return jit(model)


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def test_is_a_module(compiled: Any, model: Model) -> None:
    assert isinstance(compiled, nn.Module)
    assert compiled.scale == 2.0
    assert compiled.describe() == "scale 2.0"
    assert compiled.first is model.first
    assert compiled.first.weight is model.first.weight
    assert isinstance(compiled.second[0], nn.ReLU)
    with pytest.raises(AttributeError, match="missing"):
        compiled.missing  # noqa: B018
    assert "Linear" in repr(compiled)
    assert compiled.get_parameter("first.weight") is model.first.weight
    assert compiled.get_submodule("second.2") is model.second[2]


def test_setting_attributes_reaches_the_original(compiled: Any, model: Model) -> None:
    value = x()
    compiled(value)
    compiled.scale = 5.0
    assert model.scale == 5.0
    assert torch.equal(compiled(value), model(value))
    compiled.first = nn.Linear(4, 4, bias=False)
    assert model.first is compiled.first
    assert torch.equal(compiled(value), model(value))
    compiled.extra = nn.Parameter(torch.ones(1))
    assert "extra" in dict(model.named_parameters())
    del compiled.extra
    assert not hasattr(model, "extra")


def layers() -> list[nn.Module]:
    return [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)]


def test_assigning_and_deleting_layers_reaches_the_original(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(*layers())
    compiled = jit(model)
    value = x()

    def check() -> None:
        assert torch.equal(compiled(value), model(value))

    check()
    compiled[1] = nn.Tanh()
    assert isinstance(model[1], nn.Tanh)
    check()
    del compiled[0]
    assert len(model) == len(compiled) == 2
    check()
    compiled.append(nn.Linear(4, 2))
    check()
    before = compiled
    compiled += nn.Sequential(nn.ReLU())
    assert compiled is before
    assert [type(layer) for layer in compiled] == [nn.Tanh, nn.Linear, nn.Linear, nn.ReLU]
    check()
    compiled *= 1
    assert compiled is before
    assert type(compiled + nn.Sequential(nn.ReLU())) is nn.Sequential
    assert len(compiled * 2) == len(2 * compiled) == 8
    assert model[1] in compiled
    assert nn.ReLU() not in compiled
    assert next(reversed(compiled)) is model[3]


def test_mappings_of_modules_and_parameters(jit: Callable[..., Any]) -> None:
    modules = jit(nn.ModuleDict({"first": nn.ReLU()}))
    modules["second"] = nn.Tanh()
    assert "second" in modules
    assert list(modules) == ["first", "second"]
    del modules["first"]
    assert "first" not in modules
    parameters = jit(nn.ParameterDict({"a": torch.ones(1)}))
    assert list(parameters | {"b": torch.ones(1)}) == ["a", "b"]
    assert list({"b": torch.ones(1)} | parameters) == ["b", "a"]
    before = parameters
    parameters |= {"b": torch.ones(1)}
    assert parameters is before
    assert list(reversed(parameters)) == ["b", "a"]


def test_truth_is_the_originals(jit: Callable[..., Any]) -> None:
    assert jit(nn.Linear(2, 2))
    assert jit(nn.Sequential(nn.ReLU()))
    empty = nn.Sequential()
    assert not jit(empty)
    assert thunder.original(jit(jit(empty))) is empty


@pytest.mark.parametrize(
    "use",
    [len, iter, reversed, lambda m: m[0], lambda m: 0 in m, lambda m: m + m, lambda m: m * 2, lambda m: 2 * m,
     lambda m: m | m, lambda m: operator.setitem(m, 0, nn.ReLU()), lambda m: operator.delitem(m, 0)],
)  # fmt: skip
def test_no_container_by_being_compiled(use: Callable[[Any], Any], compiled: Any, model: Model) -> None:
    with pytest.raises(TypeError) as expected:
        use(model)
    with pytest.raises(TypeError) as actual:
        use(compiled)
    assert str(actual.value) == str(expected.value)


def test_parameters_are_shared_under_the_same_names(compiled: Any, model: Model) -> None:
    compiled(x())
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        ours, theirs = dict(getattr(compiled, method)()), dict(getattr(model, method)())
        assert list(ours) == list(theirs)
        if method in ("named_parameters", "named_buffers"):
            assert all(ours[name] is theirs[name] for name in ours)
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]


def test_state_dict_round_trip(compiled: Any, model: Model) -> None:
    assert list(compiled.state_dict()) == list(model.state_dict())
    compiled(x())
    other = Model().eval()
    result = compiled.load_state_dict(other.state_dict())
    assert not result.missing_keys
    assert not result.unexpected_keys
    value = x()
    assert torch.equal(compiled(value), other(value))
    other.load_state_dict(compiled.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        compiled.load_state_dict({})


def test_load_state_dict_by_assignment(compiled: Any, model: Model) -> None:
    compiled(x())
    other = Model().eval()
    compiled.load_state_dict(other.state_dict(), assign=True)
    value = x()
    assert torch.equal(compiled(value), other(value))


def test_train_and_eval(compiled: Any, model: Model) -> None:
    value = x()
    assert not compiled.training
    assert torch.equal(compiled(value), model(value))
    assert compiled.train() is compiled
    assert model.training
    assert model.second[1].training
    assert compiled.training
    torch.manual_seed(1)
    expected = model(value)
    torch.manual_seed(1)
    assert torch.equal(compiled(value), expected)
    assert compiled.eval() is compiled
    assert not model.training


def test_to_another_type(compiled: Any, model: Model) -> None:
    compiled(x())
    assert compiled.to(torch.float64) is compiled
    value = x().double()
    assert compiled(value).dtype is torch.float64
    assert torch.equal(compiled(value), model(value))
    assert model.first.weight.dtype is torch.float64
    compiled.half().float()
    assert compiled(x()).dtype is torch.float32


def test_to_meta(compiled: Any, model: Model) -> None:
    compiled(x())
    compiled.to("meta")
    assert compiled(x().to("meta")).is_meta


def test_requires_grad_and_zero_grad(compiled: Any, model: Model) -> None:
    compiled(x()).sum().backward()
    assert model.first.weight.grad is not None
    compiled.zero_grad()
    assert model.first.weight.grad is None
    compiled.requires_grad_(False)
    assert not compiled(x()).requires_grad


def test_apply_reaches_the_original(compiled: Any, model: Model) -> None:
    compiled.apply(lambda module: module.weight.data.zero_() if isinstance(module, nn.Linear) else None)
    assert not model.first.weight.any()


def test_deepcopy_is_independent(compiled: Any, model: Model) -> None:
    compiled(x())
    twin = copy.deepcopy(compiled)
    assert type(twin) is type(compiled)
    assert twin.first.weight is not model.first.weight
    value = x()
    assert torch.equal(twin(value), compiled(value))
    twin.first.weight.data.zero_()
    twin.scale = 7.0
    assert model.scale == 2.0
    assert model.first.weight.any()
    assert not torch.equal(twin(value), compiled(value))
    assert torch.equal(compiled(value), model(value))


def test_pickle(compiled: Any, model: Model) -> None:
    compiled(x())
    twin = pickle.loads(pickle.dumps(compiled))
    value = x()
    assert torch.equal(twin(value), compiled(value))
    assert thunder.cache_misses(twin) == 1
    assert list(twin.state_dict()) == list(model.state_dict())


def test_torch_save(compiled: Any) -> None:
    compiled(x())
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    value = x()
    assert torch.equal(twin(value), compiled(value))


def test_pickle_keeps_settings(model: Model) -> None:
    twin = pickle.loads(pickle.dumps(thunder.jit(model, cache="no caching")))
    twin(x())
    twin(x())
    assert thunder.cache_hits(twin) == 0


def test_keyword_arguments_and_hooks(compiled: Any, model: Model) -> None:
    value = x()
    assert torch.equal(compiled(value, shift=1.0), model(value, shift=1.0))
    assert torch.equal(compiled(x=value), model(x=value))
    with pytest.raises(TypeError):
        compiled(value, wrong=1)
    with pytest.raises(TypeError):
        compiled()
    seen = []
    handle = compiled.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    compiled(value)
    assert seen == [torch.Size([3, 2])]
    handle.remove()
    compiled(value)
    assert len(seen) == 1


def test_buffers_are_updated(compiled: Any, model: Model) -> None:
    for _ in range(3):
        compiled(x())
    assert model.steps == 3
    assert compiled.steps is model.steps


def test_function_keeps_its_name_and_signature(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        """Scale it."""
        return x * scale

    compiled = jit(program)
    assert compiled.__name__ == "program"
    assert compiled.__doc__ == "Scale it."
    assert compiled.__wrapped__ is program
    assert list(inspect.signature(compiled).parameters) == ["x", "scale"]


class HasMethod:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @thunder.jit
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_decorated_method() -> None:
    one, two = HasMethod(2.0), HasMethod(3.0)
    value = x()
    assert torch.equal(one.method(value), value * 2)
    assert torch.equal(two.method(value), value * 3)
    one.factor = 5.0
    assert torch.equal(one.method(value), value * 5)


def test_decorator_with_options() -> None:
    @thunder.jit(cache="no caching")
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert torch.equal(program(torch.ones(1)), torch.tensor([2.0]))


@young_heap()
def test_compiled_module_is_collected(jit: Callable[..., Any]) -> None:
    model = Model()
    compiled = jit(model)
    compiled(x()).sum().backward()
    watched = [weakref.ref(item) for item in (model, compiled, model.first.weight, model.steps)]
    del model, compiled
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)


@young_heap()
def test_compiled_function_is_collected(jit: Callable[..., Any]) -> None:
    def make() -> list[Any]:
        weight = torch.ones(4)

        def program(x: torch.Tensor) -> torch.Tensor:
            return x * weight

        compiled = jit(program)
        return [program, compiled, weight, compiled(x())]

    watched = [weakref.ref(item) for item in make()]
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)


def test_inputs_and_results_are_not_kept(jit: Callable[..., Any]) -> None:
    compiled = jit(lambda y: (y * 2).relu() + 1)
    for _ in range(2):
        value = x()
        result = compiled(value)
        watched = [weakref.ref(value), weakref.ref(result)]
        del value, result
        assert [reference() for reference in watched] == [None, None]


class Adversarial(nn.Module):
    """Methods call parts of it, as those of modules of Lightning do."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(4, 4)
        self.critic = nn.Linear(4, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.generator(z)

    def of_parts(self, z: torch.Tensor) -> torch.Tensor:
        return self.critic(self.generator(z)).mean()

    def of_itself(self, z: torch.Tensor) -> torch.Tensor:
        return self.critic(self(z)).mean()

    def sizes(self, z: torch.Tensor) -> torch.Tensor:
        return z * self.generator.in_features * len(list(self.critic.parameters()))


@pytest.mark.filterwarnings("error")
def test_calls_of_submodules_that_compile_nothing_are_reported_once() -> None:
    module = Adversarial()
    compiled, z = thunder.jit(module), torch.randn(3, 4)
    for _ in range(3):
        compiled.sizes(z)
    compiled.of_parts(z)  # a call of the module may follow
    with pytest.warns(UncompiledWarning, match=r"of_parts calls submodules .*\(critic, generator\).*thunder.jit"):
        compiled.of_parts(z)
    compiled.of_parts(z)
    compiled.critic = thunder.jit(module.critic)
    assert torch.equal(compiled.of_parts(z), module.critic(module.generator(z)).mean())
    assert thunder.cache_misses(compiled.critic) == 1
    assert module.state_dict().keys() == Adversarial().state_dict().keys()


@pytest.mark.filterwarnings("error")
def test_methods_that_call_the_module_are_not_reported() -> None:
    compiled, z = thunder.jit(Adversarial()), torch.randn(3, 4)
    for _ in range(3):
        compiled.of_itself(z)
        compiled.of_parts(z)
    assert thunder.cache_misses(compiled) == 1
