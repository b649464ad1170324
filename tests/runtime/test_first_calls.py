"""Modules that change themselves in their first call: lazy modules, users' own, graph modules of `torch.compile`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.lazy import LazyModuleMixin

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import UncacheableWarning

pytestmark = [
    pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules"),
    pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning"),
]


class DropoutBetween(nn.Module):
    """Draws random numbers before its second layer is initialized."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(8)
        self.second = nn.LazyLinear(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.dropout(torch.relu(self.first(x)), 0.3, self.training))


class Centred(nn.Linear):
    """What `LazyCentred` becomes."""


class LazyCentred(LazyModuleMixin, Centred):
    """Reads values of its first input."""

    cls_to_become = Centred  # type: ignore[assignment]

    def __init__(self, out_features: int) -> None:
        super().__init__(1, 1)
        self.weight = nn.UninitializedParameter()
        self.bias = nn.UninitializedParameter()
        self.out_features = out_features

    def initialize_parameters(self, x: torch.Tensor) -> None:
        self.in_features = x.shape[-1]
        with torch.no_grad():
            self.weight.materialize((self.out_features, self.in_features))
            self.bias.materialize((self.out_features,))
            self.reset_parameters()
            self.bias.fill_(x.mean().item())


class MakesParameter(nn.Module):
    """Makes its Parameter in its first call, as a lazy module does that is not PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None:
            self.weight = nn.Parameter(torch.rand(x.shape[-1]))
        return x * self.weight


class MakesLayer(nn.Module):
    """Makes a submodule in its first call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "layer"):
            self.layer = nn.Sequential(nn.Linear(x.shape[-1], 4), nn.ReLU())
        return self.layer(x)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.LazyLinear(4), (2, 5)),
    "convolution": (
        lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)),
        (2, 3, 8, 8),
    ),
    "transposed": (lambda: nn.Sequential(nn.LazyConvTranspose1d(4, 3), nn.LazyInstanceNorm1d(affine=True)), (2, 3, 8)),
    "dropout between": (DropoutBetween, (2, 5)),
    "makes a Parameter": (lambda: nn.Sequential(nn.Linear(5, 5), MakesParameter()), (2, 5)),
    "makes a layer": (MakesLayer, (2, 5)),
    "reads values": (lambda: nn.Sequential(nn.Linear(5, 5), LazyCentred(3)), (2, 5)),
}


def run(make: Callable[[], nn.Module], shape: tuple[int, ...], training: bool, compiler: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    module = make().train(training)
    called = compiler(module)
    value = torch.randn(shape)
    results = [called(value) for _ in range(3)]
    sum(result.square().sum() for result in results).backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    kinds = [type(part) for part in module.modules()]
    hooks = [len(part._forward_pre_hooks) for part in module.modules()]
    return called, results + gradients + list(module.buffers()) + [torch.rand(2)], kinds, hooks


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_lazy_modules(name: str, training: bool, jit: Callable[..., Any]) -> None:
    make, shape = CASES[name]
    _, expected, kinds, hooks = run(make, shape, training, lambda module: module)
    compiled, actual, *rest = run(make, shape, training, jit)
    torch.testing.assert_close(actual, expected)
    assert rest == [kinds, hooks]
    eager_first = name in ("reads values", "makes a Parameter", "makes a layer") or (
        name == "dropout between" and training
    )
    assert thunder.cache_hits(compiled) == (1 if eager_first else 2)
    assert bool(thunder.explain(compiled).fallbacks) == eager_first
    assert isinstance(compiled, type(thunder.original(compiled)))


def test_lazy_modules_of_a_function(jit: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    layer = nn.LazyLinear(3)
    twin, value = copy.deepcopy(layer), torch.randn(2, 5)
    compiled = jit(lambda x: torch.relu(layer(x)) * 2)
    torch.manual_seed(1)
    actual = [compiled(value), compiled(value)]
    torch.manual_seed(1)
    torch.testing.assert_close(actual, [torch.relu(twin(value)) * 2] * 2)
    assert thunder.cache_hits(compiled) == 1


@pytest.mark.slow
def test_a_module_that_each_call_makes(jit: Callable[..., Any]) -> None:
    """Eager runs each call, and the second warns about it."""
    compiled = jit(lambda size: nn.Linear(size, 2))
    torch.manual_seed(0)
    made = [compiled(3)]
    with pytest.warns(UncacheableWarning, match="returns or stores a module that it creates"):
        made.append(compiled(3))
    made += [compiled(3) for _ in range(20)]
    torch.manual_seed(0)
    for module in made:
        torch.testing.assert_close(module.state_dict(), nn.Linear(3, 2).state_dict())
        assert module.weight.is_leaf
    assert list(thunder.explain(compiled).fallbacks.values()) == [22]


def test_modules_without_tensors_that_each_call_makes(jit: Callable[..., Any]) -> None:
    class Holder:
        activation: nn.Module | None = None

    def program(holder: Holder, x: torch.Tensor) -> tuple[torch.Tensor, nn.Module]:
        holder.activation = nn.Sequential(nn.ReLU())
        return holder.activation(x), nn.GELU()

    compiled, holder = jit(program), Holder()
    made: list[nn.Module] = []

    def call() -> None:
        made.append(compiled(holder, torch.ones(2))[1])
        assert holder.activation is not None
        made.append(holder.activation)

    call()
    with pytest.warns(UncacheableWarning, match="returns or stores a module that it creates"):
        call()
    call()
    assert len(set(map(id, made))) == 6


def test_lazy_modules_that_fail_to_initialize(jit: Callable[..., Any]) -> None:
    compiled = jit(nn.Sequential(nn.ReLU(), nn.LazyConv2d(3, 3)))
    with pytest.raises(RuntimeError) as expected:
        nn.LazyConv2d(3, 3)(torch.randn(2))
    with pytest.raises(RuntimeError) as actual:
        compiled(torch.randn(2))
    assert str(actual.value) == str(expected.value)
    assert compiled(torch.randn(1, 2, 5, 5)).shape == (1, 3, 3, 3)


class Branching(nn.Module):
    """Two graphs, with a branch on a value between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(self.norm(torch.relu(self.layer(x))), 0.5, self.training)
        if y.sum() > 1000:
            y = y * 2
        return torch.tanh(y) + 1


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # read by torch.compile itself
@pytest.mark.parametrize("training", [True, False])
def test_backend_of_torch_compile(training: bool, jit: Callable[..., Any]) -> None:
    made: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(jit(graph))
        return made[-1]

    torch._dynamo.reset()
    model, value = Branching().train(training), torch.randn(3, 4)
    compiled = torch.compile(model, backend=backend)
    parameters = list(model.parameters())
    for seed in range(3):
        found = []
        for called in (compiled, model):
            torch.manual_seed(seed)
            result = called(value)
            found.append([result, *torch.autograd.grad(result.sum(), parameters)])
        torch.testing.assert_close(*found)
    assert [(thunder.cache_hits(program), thunder.cache_misses(program)) for program in made] == [(2, 1)] * 2
