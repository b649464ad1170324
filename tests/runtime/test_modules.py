"""What modules can have: hooks, parametrizations, tied weights, containers, recurrent layers, einops."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import einops
import einops.layers.torch
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import thunder
from tests.runtime.young_heap import young_heap


def x() -> tuple[torch.Tensor]:
    return (torch.randn(3, 4),)


def with_forward_pre_hook() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module[0].register_forward_pre_hook(lambda _module, args: (args[0] * 2,))
    return module


def with_forward_hook() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module[0].register_forward_hook(lambda _module, _args, output: output + 1)
    module.register_forward_hook(lambda _module, args, output: (output, args[0].sum()))
    return module


class TakesScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.linear(x) * scale


class CallsWithScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = TakesScale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, scale=3.0)


def with_keyword_hooks() -> nn.Module:
    module = CallsWithScale()

    def pre(_module: Any, args: Any, kwargs: Any) -> Any:
        return args, {"scale": kwargs["scale"] + 1}

    def post(_module: Any, _args: Any, kwargs: Any, output: Any) -> Any:
        return output * kwargs["scale"]

    module.inner.register_forward_pre_hook(pre, with_kwargs=True)
    module.inner.register_forward_hook(post, with_kwargs=True)
    return module


def with_weight_norm() -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(4, 4))


def with_spectral_norm() -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(4, 4)).eval()


def with_spectral_norm_training() -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(4, 4))


def with_orthogonal() -> nn.Module:
    return parametrizations.orthogonal(nn.Linear(4, 4))


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).mT


def with_own_parametrization() -> nn.Module:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) + self.embedding(torch.tensor([1, 2, 3])).sum()


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.many = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.parameter_list = nn.ParameterList([torch.randn(4) for _ in range(2)])
        self.parameter_dict = nn.ParameterDict({"scale": torch.randn(4), "shift": torch.randn(4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        for index, layer in enumerate(self.many):
            x = layer(x) + self.parameter_list[index % len(self.parameter_list)]
        return x * self.parameter_dict["scale"] + sum(self.parameter_dict.values())


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = kind(4, 5, **options)

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        return self.layer(x.unsqueeze(0), state)


class FunctionalCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled = {name: parameter * 2 for name, parameter in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, doubled, (x,))


class Einops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = einops.layers.torch.Rearrange("a (b c) -> b a c", b=2)
        self.reduce = einops.layers.torch.Reduce("b a c -> b c", "mean")

    def forward(self, x: torch.Tensor) -> Any:
        y = einops.rearrange(x, "a (b c) -> (a b) c", c=2)
        z = einops.reduce(x, "a b -> b", "max")
        w = einops.repeat(x, "a b -> a r b", r=3)
        return y, z, w, self.reduce(self.layer(x)), einops.einsum(x, x, "a b, c b -> a c")


class UsesModuleApi(nn.Module):
    """Reads its own structure while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for child in self.children():
            x = child(x)
        penalty = sum(parameter.square().sum() for parameter in self.parameters())
        first = next(self.parameters())
        x = x.to(first.dtype).to(first.device)
        return x * penalty + self.get_buffer("offset") + self.state_dict()["a.bias"]


class Sparse(nn.Module):
    """Layers of vision and recommenders."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="mean")
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.GroupNorm(3, 3)
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, x: torch.Tensor) -> Any:
        bags = self.bag(torch.arange(6), torch.tensor([0, 2, 4]))
        return bags + x, self.pool(self.norm(self.conv(x.reshape(1, 1, 3, 4))))


MODULES: list[Callable[[], nn.Module]] = [
    with_forward_pre_hook, with_forward_hook, with_keyword_hooks, with_weight_norm, with_spectral_norm,
    with_spectral_norm_training, with_orthogonal, with_own_parametrization, Tied, Containers, FunctionalCall, Einops,
    UsesModuleApi, Sparse,
    lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), lambda: nn.TransformerEncoderLayer(4, 2, 8).eval(),
    lambda: nn.BatchNorm1d(4), lambda: nn.BatchNorm1d(4).eval(),
    lambda: nn.InstanceNorm1d(3, track_running_stats=True), lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
    lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval(), lambda: nn.RReLU(), lambda: nn.PReLU(),
    lambda: nn.MultiheadAttention(4, 2).requires_grad_(False), lambda: nn.Identity(), lambda: nn.Flatten(0),
]  # fmt: skip


@pytest.mark.parametrize("make", MODULES, ids=lambda make: make.__name__)
@pytest.mark.battery
def test_module(make: Callable[[], nn.Module], check_gradients: Callable[..., None]) -> None:
    module = make()
    if isinstance(module, nn.MultiheadAttention):
        check_gradients(module, lambda: x() * 3)
    else:
        check_gradients(module, x)


@pytest.mark.parametrize("make", MODULES, ids=lambda make: make.__name__)
@pytest.mark.battery
def test_module_without_gradients(make: Callable[[], nn.Module], check: Callable[..., None]) -> None:
    module = make()
    with torch.no_grad():
        check(module, (lambda: x() * 3) if isinstance(module, nn.MultiheadAttention) else x)


@pytest.mark.parametrize("make", [with_weight_norm, with_spectral_norm_training, with_own_parametrization])
def test_calls_within_a_cache_of_parametrizations(make: Callable[[], nn.Module]) -> None:
    """The tensor in the cache is that of the first call in the context, compiled or eager."""

    def outcomes(compile: Callable[[nn.Module], nn.Module]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        module = make()
        program, found = compile(module), []
        for first in (program, module, program):
            program(x()[0]).sum().backward()
            with parametrize.cached():
                total = first(x()[0]) + program(x()[0]) * module.weight.sum()
            total.sum().backward()
            found += [total.detach(), *[parameter.grad.clone() for parameter in module.parameters()], *module.buffers()]
        return found

    torch.testing.assert_close(outcomes(thunder.jit), outcomes(lambda module: module))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}], ids=str)
@pytest.mark.slow
def test_recurrent(kind: type[nn.Module], options: dict[str, Any], check_gradients: Callable[..., None]) -> None:
    check_gradients(Recurrent(kind, **options), x)


def test_recurrent_with_state(check: Callable[..., None]) -> None:
    check(nn.LSTM(4, 5), lambda: (torch.randn(2, 3, 4), (torch.randn(1, 3, 5), torch.randn(1, 3, 5))))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells(cell: type[nn.Module], check_gradients: Callable[..., None]) -> None:
    check_gradients(cell(4, 5), x)


def test_vmap_inside(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: torch.tanh(weight @ row))(x) + 1

    check(program, lambda: (torch.randn(3, 4), torch.randn(4, 4)))


def test_functional_grad_inside(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: y.sin().sum())(x)

    check(program, x)


def test_method_of_a_module(check: Callable[..., None]) -> None:
    check(nn.Linear(4, 4).forward, x)


def test_lazy_module(check: Callable[..., None]) -> None:
    module = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    module(torch.randn(2, 4))
    check(module, x)


@young_heap()
def test_what_a_local_class_holds_is_freed_with_the_module() -> None:
    freed: list[str] = []

    def run() -> None:
        layer = torch.nn.Linear(3, 3)

        class Local(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = layer

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layer(x)

        weakref.finalize(layer, freed.append, "layer")
        thunder.jit(Local())(torch.ones(2, 3))

    run()
    gc.collect()
    assert freed == ["layer"]
