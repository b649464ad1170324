"""Sizes of arguments that the option ``dynamic`` declares with `torch.export.Dim`, against eager."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.export import Dim

import thunder
from thunder import ConfigError, DeclaredSizeError, OptionError
from thunder.config import ThunderConfig, to_yaml

BATCH = Dim("batch", max=64)


def scores(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight).softmax(-1)


def pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y * 2], 1).sum(0) * x.shape[0]


def constant(x: torch.Tensor) -> torch.Tensor:
    return x * len(range(x.shape[0]))


def compiled(program: Any, dynamic: Any) -> Any:
    return thunder.jit(program, dynamic=dynamic, executors=[])


def check(f: Any, program: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """The number of compilations after a call that gives what eager PyTorch does."""
    torch.testing.assert_close(f(*args, **kwargs), program(*args, **kwargs), rtol=0, atol=0)
    return thunder.cache_misses(f)


def symbols(f: Any, index: int = 0) -> tuple[str, ...]:
    sizes = thunder.explain(f).entries[index].sizes
    return () if sizes is None else tuple([place for _, place in sizes.symbols])


def test_a_symbol_from_the_first_call_on() -> None:
    f = compiled(scores, {"x": {0: BATCH}})
    weight = torch.randn(16, 3)
    assert [check(f, scores, torch.randn(n, 16), weight) for n in (8, 20, 64, 2)] == [1] * 4
    assert symbols(f) == ("x.shape[0]",)
    assert any("2 <= s0 <= 64" in guard for guard in thunder.explain(f).entries[0].guards)
    assert [check(f, scores, torch.randn(n, 16), weight) for n in (1, 0, 1, 9)] == [2, 3, 3, 3]


def test_calls_out_of_bounds_are_errors() -> None:
    f = compiled(scores, {"x": {0: Dim("batch", min=4, max=64)}})
    weight = torch.randn(16, 3)
    for _ in range(2):
        for n in (3, 65, 1):
            with pytest.raises(DeclaredSizeError, match=rf"x.shape\[0\] is {n}, and .* Dim\('batch', min=4, max=64\)"):
                f(torch.randn(n, 16), weight)
        assert check(f, scores, torch.randn(9, 16), weight=weight) >= 1
    assert len(thunder.explain(f).entries) == 1


def test_what_is_not_declared_is_automatic() -> None:
    f = compiled(scores, {"x": {0: BATCH}})
    shapes = [(8, 3), (9, 3), (9, 5), (7, 6)]
    assert [check(f, scores, torch.randn(n, 16), torch.randn(16, k)) for n, k in shapes] == [1, 1, 2, 2]


@pytest.mark.parametrize("dynamic", [{"x": [BATCH, 4], "y": (BATCH, None)}, {"x": {0: BATCH}, "y": {0: BATCH}}])
def test_one_dim_in_two_places(dynamic: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum(0)  # does not need equal sizes

    f = compiled(program, dynamic)
    assert [check(f, program, torch.randn(n, 4), torch.randn(n, 4)) for n in (5, 9, 2)] == [1] * 3
    with pytest.raises(DeclaredSizeError, match=r"x.shape\[0\] is 5 and y.shape\[0\] is 6.*makes them equal"):
        f(torch.randn(5, 4), torch.randn(6, 4))
    apart = compiled(program, {"x": {0: Dim("a")}, "y": {0: Dim("b")}})
    sizes = [(5, 5), (5, 6), (2, 9)]
    assert [check(apart, program, torch.randn(n, 4), torch.randn(m, 4)) for n, m in sizes] == [1] * 3


def test_equal_sizes_are_one_symbol() -> None:
    f = compiled(pairs, {"x": {0: BATCH}, "y": {0: BATCH}})
    assert [check(f, pairs, torch.randn(n, 4), torch.randn(n, 3)) for n in (5, 9)] == [1, 1]
    assert thunder.last_traces(f)[0].sizes == ("s0",)


def test_a_dim_that_the_program_makes_a_constant() -> None:
    for dim, text in ((BATCH, r"Dim\('batch', max=64\)"), (Dim.DYNAMIC, "Dim.DYNAMIC")):
        f = compiled(constant, {"x": {0: dim}})
        x = torch.ones(5)
        for _ in range(2):
            with pytest.raises(DeclaredSizeError, match=rf"x.shape\[0\] is declared as {text}") as caught:
                f(x)
            assert "s0 == 5" in str(caught.value)
            assert "range(x.shape[0])" in str(caught.value)
            assert caught.value.location is not None
        assert thunder.explain(f).entries == ()


def test_constants_by_another_size_and_after_a_call_with_size_one() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert y.shape[0] == x.shape[0]
        return y * len(range(x.shape[0]))

    f = compiled(program, {"y": {0: BATCH}, "x": {0: Dim.AUTO}})
    with pytest.raises(DeclaredSizeError, match=r"y.shape\[0\] is declared"):
        f(torch.ones(5), torch.ones(5))

    namespace: dict[str, Any] = {"type": type}  # the name cannot lead to another function
    exec("def mapped(x):\n    return x.sin() if type(x.shape[0]) is int else x\n", namespace)
    mapped = namespace["mapped"]
    g = compiled(mapped, {"x": {0: BATCH}})
    assert check(g, mapped, torch.randn(1, 4)) == 1
    for _ in range(2):
        with pytest.raises(DeclaredSizeError, match="class"):
            g(torch.randn(5, 4))


def test_sizes_that_do_not_vary() -> None:
    parameter = torch.nn.Parameter(torch.randn(5, 4))
    f = compiled(constant, {"x": {0: BATCH}})
    with pytest.raises(DeclaredSizeError, match="sizes of parameters") as caught:
        f(parameter)
    assert "Dim.AUTO" in str(caught.value)
    assert check(compiled(constant, {"x": {0: Dim.AUTO}}), constant, parameter) == 1


def test_views_with_gradients() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.shape[0] * x.sin()

    f = compiled(program, {"x": {0: BATCH}})
    assert [check(f, program, torch.randn(9, 4, requires_grad=True)[:n]) for n in (5, 6, 7)] == [1, 1, 1]


def test_hints() -> None:
    f = compiled(constant, {"x": {0: Dim.AUTO}})
    assert [check(f, constant, torch.ones(n, 4)) for n in (5, 5, 6)] == [1, 1, 2]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.shape[0]

    g = compiled(program, {"x": {0: Dim.AUTO, 1: Dim.DYNAMIC(min=3, max=8)}})
    assert [check(g, program, torch.ones(*shape)) for shape in ((5, 4), (6, 7), (7, 3))] == [1] * 3
    with pytest.raises(DeclaredSizeError, match=r"Dim.DYNAMIC\(min=3, max=8\)"):
        g(torch.ones(5, 9))
    for static in (Dim.STATIC, None):
        h = compiled(program, {"x": {0: static}})
        assert [check(h, program, torch.ones(n, 4)) for n in (5, 6, 7)] == [1, 2, 3]
    i = compiled(program, {"x": [Dim.DYNAMIC, 4]})
    assert [check(i, program, torch.ones(n, 4)) for n in (5, 6)] == [1, 1]
    with pytest.raises(DeclaredSizeError, match=r"x.shape\[1\] is 5, and dynamic declares it as 4"):
        i(torch.ones(5, 5))


def test_a_program_that_depends_on_values() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    calls = ((5, 1), (5, -1), (6, 1), (7, -1))
    for dim in (BATCH, Dim.DYNAMIC, Dim.AUTO):
        f = compiled(program, {"x": {0: dim}})
        assert [check(f, program, torch.ones(n) * sign) for n, sign in calls] == [1, 2, 2, 2]


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


def test_containers() -> None:
    def program(batch: dict[str, Any], pair: Pair, *rest: torch.Tensor, **named: torch.Tensor) -> Any:
        total = batch["x"] + batch["more"][1].sum() + pair.first.mean()
        return {"total": total, "rest": [item * 2 for item in rest], "named": named["z"].cumsum(0)}

    dynamic = {
        "batch": {"x": {0: BATCH}, "more": [None, [BATCH]]},
        "pair": ({0: BATCH}, {0: BATCH}),
        "rest": [{0: Dim("rest")}],
        "named": {"z": {0: BATCH, 1: Dim("width")}},
    }
    f = compiled(program, dynamic)

    def arguments(n: int, k: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        batch = {"x": torch.randn(n, 2), "more": [torch.randn(3), torch.randn(n)], "other": torch.randn(2)}
        return (batch, Pair(torch.randn(n), None), torch.randn(k)), {"z": torch.randn(n, k)}

    for n, k in ((5, 3), (6, 9), (12, 4)):
        args, kwargs = arguments(n, k)
        assert check(f, program, *args, **kwargs) == 1
    args, kwargs = arguments(7, 3)
    kwargs["z"] = torch.randn(8, 3)
    with pytest.raises(DeclaredSizeError, match=r"batch\['x'\].shape\[0\] is 7 and named\['z'\].shape\[0\] is 8"):
        f(*args, **kwargs)
    args, kwargs = arguments(7, 3)
    args[0]["max"] = args[0].pop("more")
    with pytest.raises(DeclaredSizeError, match=r"batch\['more'\], which the call lacks"):
        f(*args, **kwargs)


def test_declarations_count_before_marks() -> None:
    weight = torch.randn(4, 3)
    f = compiled(scores, {"x": {0: BATCH, 1: None}})
    for number, n in enumerate((5, 6, 7)):
        x = torch.randn(n, 4)
        if not number:
            torch._dynamo.mark_static(x, 0)
            torch._dynamo.mark_dynamic(x, 1)
        assert check(f, scores, x, weight) == 1
    assert symbols(f) == ("x.shape[0]",)


def test_the_users_tensors_stay_as_they_are() -> None:
    x = torch.ones(5, 4)
    check(compiled(scores, {"x": {0: BATCH}}), scores, x, torch.ones(4, 4))
    assert vars(x) == {}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, tokens: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        hidden: torch.Tensor = self.layers(tokens)
        return hidden if scale is None else hidden * scale


@pytest.mark.slow
def test_modules_train() -> None:
    torch.manual_seed(0)
    module = Model()
    eager = copy.deepcopy(module)
    dynamic = {"tokens": {0: BATCH, 1: Dim("length")}, "scale": {0: BATCH}}
    f = compiled(module, dynamic)
    for n, length in ((3, 5), (4, 7), (9, 2)):
        tokens = torch.randn(n, length, 8)
        scale = torch.randn(n, 1, 1)
        for model in (f, eager):
            model(tokens, scale=scale).square().mean().backward()
        for one, other in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert thunder.cache_misses(f) == 1
    assert check(f, eager, torch.randn(5, 4, 8)) == 2
    with pytest.raises(OptionError, match=r"'token', which is not a parameter of Model; did you mean 'tokens'\?"):
        compiled(module, {"token": {0: BATCH}})


@pytest.mark.slow
def test_gradients_of_inputs_and_functions() -> None:
    f = compiled(pairs, {"x": {0: BATCH}, "y": {0: BATCH}})
    for n in (4, 6):
        inputs = [torch.randn(n, 3, requires_grad=True) for _ in range(2)]
        found = torch.autograd.grad(f(*inputs).sum(), inputs)
        torch.testing.assert_close(found, torch.autograd.grad(pairs(*inputs).sum(), inputs))
    assert thunder.cache_misses(f) == 1

    def loss(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum()

    for declared in (Dim.AUTO, BATCH):
        g = thunder.grad(loss, dynamic={"x": {0: declared}}, executors=[])
        for n in (4, 6):
            x = torch.randn(n)
            torch.testing.assert_close(g(x), x.cos())
        assert thunder.cache_misses(g) == 1


def test_decorators_and_partial_calls() -> None:
    @thunder.jit(dynamic={"y": {0: BATCH}}, executors=[])
    def program(x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
        return x * y.sum()

    for n in (3, 4):
        x, y = torch.randn(2), torch.randn(n)
        torch.testing.assert_close(program(x, y=y), x * y.sum(), rtol=0, atol=0)
    assert thunder.cache_misses(program) == 1
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument"):
        program(torch.randn(2))


def test_methods_and_copies() -> None:
    class Scale:
        @thunder.jit(dynamic={"x": {0: BATCH}}, executors=[])
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    scale = Scale()
    for n in (3, 4):
        torch.testing.assert_close(scale.apply(torch.ones(n)), torch.full((n,), 2.0))
    assert thunder.cache_misses(Scale.apply) == 1
    f = compiled(Model(), {"tokens": {0: BATCH}})
    for g in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        with torch.no_grad():
            assert [check(g, thunder.original(g), torch.randn(n, 3, 8)) for n in (4, 5)] == [1, 1]


def test_what_else_the_program_needs_is_a_guard() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.view(-1, 8).sum(0) if x.shape[0] > 16 else x * 2
        x.add_(1)
        return y

    f = compiled(program, {"x": {0: BATCH}})
    for n, expected in ((24, 1), (32, 1), (8, 2), (9, 2), (40, 2)):
        x = torch.randn(n)
        y = x.clone()
        torch.testing.assert_close(f(x), program(y))
        torch.testing.assert_close(x, y, rtol=0, atol=0)
        assert thunder.cache_misses(f) == expected


def test_an_error_of_the_program_is_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.view(7)

    with pytest.raises(RuntimeError, match="invalid for input of size 3"):
        compiled(program, {"x": {0: BATCH}})(torch.ones(3))


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"z": {0: BATCH}}, "'z', which is not a parameter of scores"),
        ({"weights": {0: BATCH}}, r"did you mean 'weight'\?"),
        ({0: {0: BATCH}}, "names of parameters as keys, not 0"),
        ({"x": {0: "batch"}}, r"x\[0\] must be a Dim, .*, not 'batch'"),
        ({"x": {0: True}}, r"x\[0\] must be a Dim, .*, not True"),
        ({"x": [BATCH, 2.0]}, r"x\[1\] must be a Dim, .*, not 2.0"),
        ({"x": {0: 2 * BATCH}}, "computed from another Dim"),
        ({"x": {0: BATCH, 1: Dim("batch", max=8)}}, "two definitions of one Dim"),
        ([BATCH], "not a list"),
        ("always", 'true, false or "automatic"'),
    ],
)
def test_declarations_that_are_refused(dynamic: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        compiled(scores, dynamic)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({2: BATCH}, "dimension 2 of x, whose dimensions are 0 to 1"),
        ({-1: BATCH}, "dimension -1 of x"),
        ({"a": BATCH}, "dimension 'a' of x"),
        ([BATCH], "1 dimensions of x, which has 2"),
        (BATCH, "a dictionary or a list of dimensions for the tensor x"),
        ({0: {0: BATCH}}, r"x.shape\[0\]: x is a tensor"),
    ],
)
def test_declarations_that_do_not_fit_the_call(declared: Any, message: str) -> None:
    f = compiled(scores, {"x": declared})
    with pytest.raises(DeclaredSizeError, match=message):
        f(torch.ones(5, 4), torch.ones(4, 4))


def test_declarations_of_what_has_no_sizes() -> None:
    def program(x: torch.Tensor, n: Any) -> torch.Tensor:
        return x * 2

    x = torch.ones(3)
    for value, declared in ((3, Dim.DYNAMIC), (object(), {0: BATCH}), ([x, x], [None]), ({"a": x}, [None])):
        with pytest.raises(DeclaredSizeError, match=r"for n, which is of the type|1 items of n, which has 2"):
            compiled(program, {"n": declared})(x, value)
    with pytest.raises(OptionError, match="has no signature"):
        compiled(torch.sin, {"x": {0: BATCH}})


def test_files_have_no_declarations(tmp_path: Path) -> None:
    path = tmp_path / "thunder.yaml"
    path.write_text("cache: same input\ndynamic:\n  x: {0: 4}\n")
    with pytest.raises(ConfigError, match=r"thunder.yaml:2: dynamic: must be true, false .* in a file") as caught:
        thunder.jit(scores, config=path)
    assert 'thunder.jit(f, dynamic={"x": {0: Dim("batch")}})' in str(caught.value)


def test_configurations_keep_declarations() -> None:
    config, equal = [ThunderConfig(dynamic={"x": {0: BATCH, 1: Dim.AUTO}}) for _ in range(2)]
    assert config == equal
    assert hash(config) == hash(equal)
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.model_dump()["dynamic"] == {"x": {0: "Dim('batch', max=64)", 1: "Dim.AUTO"}}
    with pytest.raises(ConfigError, match="declares sizes of arguments"):
        to_yaml(config)
    f = thunder.jit(scores, config=config, executors=[])
    assert [check(f, scores, torch.randn(n, 4), torch.randn(4, 3)) for n in (5, 6)] == [1, 1]
    assert "dynamic={'x': {0: \"Dim('batch', max=64)\"" in thunder.explain(f).details()
