"""Calls of compiled programs under torch.func transformations, against eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import thunder
from thunder_core.errors import UncacheableError

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:FutureWarning"),  # since PyTorch 2.15
]

Function = Callable[..., Any]


def elementwise(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.cos().sum()


def scalar(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum()


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sin() @ y


def tree(values: dict[str, torch.Tensor], *, factor: float) -> dict[str, Any]:
    return {"products": (values["x"] * factor, values["y"].exp()), "factor": factor, "name": None}


def with_indices(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.softmax(-1).gather(-1, index), index + 1


def with_aux(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return scalar(x), x.exp()


def dropped(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x.exp(), 0.5)


def arguments() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).div(7)


PROGRAMS: dict[str, tuple[Function, Callable[[Function, torch.Tensor], Any]]] = {
    "vmap": (elementwise, lambda f, x: vmap(f)(x)),
    "in_dims": (two, lambda f, x: vmap(f, in_dims=(1, None))(x, torch.ones(3, 2))),
    "out_dims": (elementwise, lambda f, x: vmap(f, out_dims=1)(x)),
    "nested vmap": (elementwise, lambda f, x: vmap(vmap(f, in_dims=1))(x.expand(2, 3, 4))),
    "chunks": (elementwise, lambda f, x: vmap(f, chunk_size=2)(x)),
    "not batched": (elementwise, lambda f, x: vmap(lambda y: f(x) + y)(x)),
    "grad": (scalar, lambda f, x: grad(f)(x)),
    "argnums": (two, lambda f, x: grad(lambda *a: f(*a).sum(), (0, 1))(x, torch.ones(4, 2))),
    "grad_and_value": (scalar, lambda f, x: grad_and_value(f)(x)),
    "has_aux": (with_aux, lambda f, x: grad(f, has_aux=True)(x)),
    "vjp": (elementwise, lambda f, x: vjp(f, x)[1](x)),
    "vjp without grad": (elementwise, lambda f, x: _without_grad(vjp(f, x)[1], x)),
    "jvp": (elementwise, lambda f, x: jvp(f, (x,), (x.cos(),))),
    "jvp of one": (two, lambda f, x: jvp(lambda y: f(y, torch.ones(4, 2)), (x,), (x,))),
    "jacfwd": (elementwise, lambda f, x: jacfwd(f)(x)),
    "jacrev": (elementwise, lambda f, x: jacrev(f)(x)),
    "hessian": (scalar, lambda f, x: hessian(f)(x)),
    "jacrev of jacfwd": (scalar, lambda f, x: jacrev(jacfwd(f))(x)),
    "jacfwd of jacfwd": (scalar, lambda f, x: jacfwd(jacfwd(f))(x)),
    "jacrev of jacrev": (scalar, lambda f, x: jacrev(jacrev(f))(x)),
    "grad of grad": (scalar, lambda f, x: grad(lambda y: grad(f)(y).sum())(x)),
    "vmap of grad": (scalar, lambda f, x: vmap(grad(f))(x)),
    "grad of vmap": (elementwise, lambda f, x: grad(lambda y: vmap(f)(y).sum())(x)),
    "vmap of hessian": (scalar, lambda f, x: vmap(hessian(f))(x)),
    "trees": (tree, lambda f, x: vmap(lambda v: f(v, factor=2.0)["products"])({"x": x, "y": x + 1})),
    "gradient of trees": (tree, lambda f, x: grad(lambda v: f(v, factor=2.0)["products"][0].sum())({"x": x, "y": x})),
    "integers": (with_indices, lambda f, x: vmap(f)(x, torch.tensor([[0], [3], [1]]))),
    "gradient beside integers": (
        with_indices,
        lambda f, x: grad(lambda y: f(y, torch.tensor([[0], [3], [1]]))[0].sum())(x),
    ),
    "tangents beside integers": (
        lambda x, index: with_indices(x, index)[0],
        lambda f, x: jvp(lambda y: f(y, torch.tensor([[0], [3], [1]])), (x,), (x,)),
    ),
    "different draws": (dropped, lambda f, x: vmap(f, randomness="different")(x)),
    "same draws": (dropped, lambda f, x: vmap(f, randomness="same")(x)),
    "identity's gradient": (lambda x: x + 0, lambda f, x: vjp(f, x)[1](x)),
}


def _without_grad(pull: Function, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return pull(x)


def _assert_compiled(compiled: Any, call: Callable[[Any], Any], expected: Callable[[], Any]) -> None:
    """Two calls give what eager gives, with its state of the random generator; all that runs is compiled, once."""
    misses = None
    for _ in range(2):
        torch.manual_seed(5)
        wanted, state = expected(), torch.get_rng_state()
        torch.manual_seed(5)
        torch.testing.assert_close(call(compiled), wanted)
        assert torch.equal(torch.get_rng_state(), state)
        assert not thunder.explain(compiled).fallbacks
        assert misses in (None, thunder.cache_misses(compiled))
        misses = thunder.cache_misses(compiled)
    assert misses
    assert thunder.cache_hits(compiled)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_compiles(name: str) -> None:
    function, call = PROGRAMS[name]
    x = arguments()
    _assert_compiled(thunder.jit(function), lambda f: call(f, x), lambda: call(function, x))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("name", ["vmap of grad", pytest.param("hessian", marks=pytest.mark.battery)])
@pytest.mark.slow
def test_inductor(name: str) -> None:
    function, call = PROGRAMS[name]
    x = arguments()
    _assert_compiled(thunder.jit(function, executors=["inductor"]), lambda f: call(f, x), lambda: call(function, x))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2)).eval()


@pytest.mark.slow
def test_gradients_of_each_sample() -> None:
    model, x = network(), arguments()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def call(f: Any) -> Any:
        def loss(parameters: Any, sample: torch.Tensor) -> torch.Tensor:
            return functional_call(f, (parameters, buffers), (sample[None],)).square().sum()

        return vmap(grad(loss), in_dims=(None, 0))(parameters, x)

    _assert_compiled(thunder.jit(model), call, lambda: call(model))


@pytest.mark.slow
def test_ensemble() -> None:
    models = [network() for _ in range(3)]
    for index, model in enumerate(models):
        nn.init.constant_(model[0].weight, index)  # type: ignore[index, arg-type]
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    base, x = copy.deepcopy(models[0]), arguments()

    def call(f: Any) -> Any:
        return vmap(lambda p, b: functional_call(f, (p, b), (x,)))(parameters, buffers)

    _assert_compiled(thunder.jit(base), call, lambda: call(base))


@pytest.mark.parametrize("transform", [vmap, jacfwd, lambda f: grad(lambda x: f(x).square().sum())])
def test_parameters_under_autograd(transform: Callable[[Any], Any]) -> None:
    """Gradients of parameters, by PyTorch's autograd outside of the transformation."""
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh()), arguments()
    compiled = thunder.jit(model)
    for _ in range(2):
        found = []
        for f in (model, compiled):
            y = x.clone().requires_grad_()
            transform(f)(y).square().sum().backward()
            found.append([y.grad, *[parameter.grad for parameter in model.parameters()]])
            model.zero_grad()
        torch.testing.assert_close(found[1], found[0])
    assert not thunder.explain(compiled).fallbacks


def test_draws_in_a_derivative_run_eagerly() -> None:
    x = arguments()
    compiled = thunder.jit(dropped)
    for _ in range(2):
        results = []
        for f in (dropped, compiled):
            torch.manual_seed(1)
            results.append(grad(lambda y, f=f: f(y).sum())(x))
        assert torch.equal(*results)
    assert list(thunder.explain(compiled).fallbacks) == [
        "it draws random numbers under a torch.func transformation that would draw them again"
    ]


def test_error_of_random_draws() -> None:
    with pytest.raises(RuntimeError, match="vmap: called random operation while in randomness error mode"):
        vmap(thunder.jit(dropped))(arguments())


def test_wrapped_variables() -> None:
    """Tensors of a transformation that the program reads elsewhere; first seen plain, then wrapped, and vice versa."""
    x, w, weights = arguments(), torch.randn(4), torch.randn(3, 4)
    state = SimpleNamespace(w=w)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * state.w).sin()

    def call(f: Any, w: torch.Tensor) -> torch.Tensor:
        state.w = w
        return vmap(f)(x)

    def direct(f: Any, w: torch.Tensor) -> torch.Tensor:
        state.w = w
        return f(x).sum()

    for order in ((True, False), (False, True)):
        compiled = thunder.jit(program)
        for plain in (*order, *order):
            if plain:
                torch.testing.assert_close(call(compiled, w), call(program, w))
                continue
            for f in (call, direct):
                found, expected = (vmap(lambda w, g=g, f=f: f(g, w))(weights) for g in (compiled, program))
                torch.testing.assert_close(found, expected)
            found, expected = (grad(lambda w, g=g: direct(g, w))(w) for g in (compiled, program))
            torch.testing.assert_close(found, expected)
        assert thunder.explain(compiled).fallbacks


def test_wrapped_variable_whose_tensor_is_read_too() -> None:
    weights = torch.randn(4)
    state = SimpleNamespace(w=weights, other=weights)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * state.w).sin() * state.other

    def direct(f: Any, w: torch.Tensor) -> torch.Tensor:
        state.w = w
        return grad(lambda x: f(x).sum())(arguments()).sum()

    compiled = thunder.jit(program)
    for _ in range(2):
        found, expected = (grad(lambda w, g=g: direct(g, w))(weights) for g in (compiled, program))
        torch.testing.assert_close(found, expected)


def test_effects_run_eagerly() -> None:
    lines: list[int] = []
    total = torch.zeros(3, 4)

    def appends(x: torch.Tensor) -> torch.Tensor:
        lines.append(len(lines))
        return x.sin()

    def writes(x: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return x.sin()

    def writes_argument(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).sin()

    x = arguments()
    for _ in range(2):
        torch.testing.assert_close(vmap(_kept(appends))(x), x.sin())
        torch.testing.assert_close(vmap(lambda y: _kept(writes)(x) + y)(x), x.sin() + x[:, None])
        y = x.clone()
        torch.testing.assert_close(vmap(_kept(writes_argument))(y), (x * 2).sin())
        torch.testing.assert_close(y, x * 2)
    assert len(lines) == 2
    assert torch.equal(total, torch.full((3, 4), 2.0))
    for function in (appends, writes, writes_argument):
        assert sum(thunder.explain(_kept(function)).fallbacks.values()) == 2


_compiled: dict[Any, Any] = {}


def _kept(function: Function) -> Any:
    return _compiled.setdefault(function, thunder.jit(function))


def test_views_of_arguments_are_views() -> None:
    def call(f: Any) -> torch.Tensor:
        x = arguments()
        vmap(lambda row: f(row).mul_(2))(x)
        return x

    compiled = thunder.jit(lambda x: x[1:])
    for _ in range(2):
        torch.testing.assert_close(call(compiled), call(lambda x: x[1:]))


def test_state_that_changes() -> None:
    state, x = SimpleNamespace(scale=2.0), arguments()

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * state.scale).sum()

    compiled = thunder.jit(program)
    for state.scale in (2.0, 3.0):
        torch.testing.assert_close(grad(compiled)(x), x.cos() * state.scale)
    _, pull = vjp(compiled, x)
    state.scale = 4.0
    with pytest.raises(
        UncacheableError, match=r"differentiated by torch\.func after something that it reads was changed"
    ):
        pull(torch.ones(()))


def test_modes_run_eagerly() -> None:
    x = arguments()
    compiled = thunder.jit(scalar)
    with torch.no_grad():
        torch.testing.assert_close(grad(compiled)(x), grad(scalar)(x))
        torch.testing.assert_close(jacfwd(compiled)(x), jacfwd(scalar)(x))

    def under_autocast(f: Any) -> Any:
        def loss(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return f(x, x.T).float().sum()

        return grad(loss)(x)

    product = thunder.jit(two)
    torch.testing.assert_close(under_autocast(product), under_autocast(two))
    assert list(thunder.explain(product).fallbacks) == ["a torch.func derivative is taken under autocast"]


def test_errors_are_eagers() -> None:
    with pytest.raises(RuntimeError, match=r"inconsistent tensor size|size mismatch|shape"):
        vmap(thunder.jit(two), in_dims=(0, None))(arguments(), torch.ones(3, 2))


def test_declared_sizes_run_as_eager() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    compiled = thunder.jit(program, dynamic={"x": {0: torch.export.Dim("batch")}})
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.func.vmap(compiled)(x), program(x))
    assert thunder.cache_misses(compiled) == 0
    assert any("declares sizes" in reason for reason in thunder.explain(compiled).fallbacks)
