"""Spellings of one operation resolve to one symbol with the same arguments, and do what eager does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import thunder_core.symbols
from tests.runtime.young_heap import young_heap
from tests.symbols.resolving import check_canonical, resolved
from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.symbols.operators import torch_function
from thunder_core.symbols.registry import Registry, registry
from thunder_testing.compare import Arguments, assert_same_behaviour


class Calls(TorchFunctionMode):
    """Notes the resolved calls, without those that only read metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.resolved: list[tuple[Any, ...]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if not registry.is_metadata(func):
            self.resolved.append(registry.resolve(func, args, kwargs))
        return func(*args, **(kwargs or {}))


def only_call(program, *arguments: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Name and arguments of the one torch call of ``program``, tensors by their number among the arguments."""
    with Calls() as calls:
        program(*arguments)
    [(symbol, args, kwargs)] = calls.resolved
    check_canonical(symbol, args, kwargs)

    def described(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(described(item) for item in value)
        numbers = [index for index, argument in enumerate(arguments) if argument is value]
        return f"argument {numbers[0]}" if numbers else value

    return symbol.name, tuple(map(described, args)), {key: described(value) for key, value in kwargs.items()}


def matrix() -> torch.Tensor:
    return torch.arange(1.0, 10.0).reshape(3, 3)


SAME = {
    "add": [
        lambda x, y: x + y,
        lambda x, y: x.add(y),
        lambda x, y: x.add(other=y),
        lambda x, y: torch.add(x, y),
        lambda x, y: torch.add(input=x, other=y),
        lambda x, y: torch.add(x, y, alpha=1),
        lambda x, y: x.__add__(y),
        lambda x, y: x.__radd__(y),
    ],
    "sub": [
        lambda x, y: x - y,
        lambda x, y: x.subtract(y),
        lambda x, y: torch.sub(x, y),
        lambda x, y: x.sub(y, alpha=1),
    ],
    "div": [lambda x, y: x / y, lambda x, y: x.true_divide(y), lambda x, y: torch.div(x, y, rounding_mode=None)],
    "floor division": [lambda x, y: x // y, lambda x, y: torch.floor_divide(x, y), lambda x, y: x.floor_divide(y)],
    "matmul": [
        lambda x, y: x @ y,
        lambda x, y: torch.matmul(x, y),
        lambda x, y: x.matmul(y),
        lambda x, y: y.__rmatmul__(x),
    ],
    "reflected sub": [lambda x, y: 2 - x, lambda x, y: torch.rsub(x, 2), lambda x, y: x.__rsub__(2)],
    "reflected power": [lambda x, y: 2**x, lambda x, y: torch.pow(2, x)],
    "reflected floor division": [lambda x, y: 7 // x, lambda x, y: x.__rfloordiv__(7)],
    "reflected remainder": [lambda x, y: 7 % x, lambda x, y: torch.remainder(7, x)],
    "equality": [lambda x, y: x == y, lambda x, y: torch.eq(x, y), lambda x, y: x.eq(y)],
    "relu": [
        lambda x, y: x.relu(),
        lambda x, y: torch.relu(x),
        lambda x, y: functional.relu(x),
        lambda x, y: functional.relu(x, False),
        lambda x, y: torch.nn.ReLU()(x),
    ],
    "relu in place": [
        lambda x, y: functional.relu(x, inplace=True),
        lambda x, y: functional.relu_(x),
        lambda x, y: x.relu_(),
        lambda x, y: torch.nn.ReLU(inplace=True)(x),
    ],
    "sigmoid": [lambda x, y: x.sigmoid(), lambda x, y: functional.sigmoid(x), lambda x, y: torch.special.expit(x)],
    "softmax": [
        lambda x, y: x.softmax(-1),
        lambda x, y: torch.softmax(x, dim=-1),
        lambda x, y: functional.softmax(x, dim=-1),
        lambda x, y: functional.softmax(x, -1, dtype=None),
    ],
    "softmax in float64": [
        lambda x, y: x.softmax(-1, dtype=torch.float64),
        lambda x, y: functional.softmax(x, dim=-1, dtype=torch.float64),
    ],
    "sum": [
        lambda x, y: x.sum(1),
        lambda x, y: x.sum(dim=1),
        lambda x, y: x.sum(axis=1),
        lambda x, y: torch.sum(x, 1, keepdim=False),
        lambda x, y: torch.sum(x, dim=1, keepdims=False),
    ],
    "whole sum": [lambda x, y: x.sum(), lambda x, y: torch.sum(x, dtype=None), lambda x, y: x.sum(dim=None)],
    "sum of two dimensions": [
        lambda x, y: x.sum((0, 1)),
        lambda x, y: x.sum([0, 1]),
        lambda x, y: torch.sum(x, dim=(0, 1)),
    ],
    "max": [lambda x, y: x.max(1), lambda x, y: torch.max(x, dim=1), lambda x, y: torch.max(x, 1, keepdim=False)],
    "elementwise max": [lambda x, y: torch.max(x, y), lambda x, y: x.max(other=y)],
    "variance": [lambda x, y: x.var(1, unbiased=False), lambda x, y: torch.var(x, dim=1, unbiased=False)],
    "reshape": [
        lambda x, y: x.reshape(1, 9),
        lambda x, y: x.reshape((1, 9)),
        lambda x, y: x.reshape([1, 9]),
        lambda x, y: x.reshape(torch.Size([1, 9])),
        lambda x, y: x.reshape(shape=(1, 9)),
        lambda x, y: torch.reshape(x, (1, 9)),
    ],
    "reshape to one": [lambda x, y: x.reshape(-1), lambda x, y: x.reshape((-1,)), lambda x, y: torch.reshape(x, [-1])],
    "view": [lambda x, y: x.view(1, 9), lambda x, y: x.view((1, 9)), lambda x, y: x.view(size=[1, 9])],
    "permute": [
        lambda x, y: x.permute(1, 0),
        lambda x, y: torch.permute(x, (1, 0)),
        lambda x, y: x.permute(dims=[1, 0]),
    ],
    "expand": [lambda x, y: x.expand(2, 3, 3), lambda x, y: x.expand((2, 3, 3)), lambda x, y: x.expand(size=[2, 3, 3])],
    "flip": [lambda x, y: x.flip(0, 1), lambda x, y: x.flip([0, 1]), lambda x, y: torch.flip(x, dims=(0, 1))],
    "repeat": [lambda x, y: x.repeat(2, 1), lambda x, y: x.repeat((2, 1))],
    "tile": [lambda x, y: x.tile(2, 1), lambda x, y: torch.tile(x, (2, 1))],
    "transpose": [
        lambda x, y: x.transpose(0, 1),
        lambda x, y: torch.transpose(x, dim0=0, dim1=1),
        lambda x, y: x.swapaxes(axis0=0, axis1=1),
        lambda x, y: x.swapdims(0, 1),
    ],
    "split": [
        lambda x, y: x.split(2),
        lambda x, y: torch.split(x, 2),
        lambda x, y: torch.split(x, split_size_or_sections=2),
    ],
    "cat": [
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.concat([x, y], dim=0),
        lambda x, y: torch.cat([x, y], axis=0),
    ],
    "linear": [lambda x, y: functional.linear(x, y), lambda x, y: functional.linear(x, weight=y, bias=None)],
    "layer norm": [
        lambda x, y: functional.layer_norm(x, (3,)),
        lambda x, y: functional.layer_norm(x, [3], None, None, 1e-5),
        lambda x, y: torch.nn.LayerNorm(3, elementwise_affine=False)(x),
        lambda x, y: torch.layer_norm(x, (3,)),
    ],
    "dropout": [
        lambda x, y: functional.dropout(x, 0.5, True),
        lambda x, y: functional.dropout(x),
        lambda x, y: torch.nn.Dropout()(x),
        lambda x, y: torch.dropout(x, 0.5, True),
        lambda x, y: torch.dropout(x, p=0.5, train=True),
    ],
    "loss": [
        lambda x, y: functional.mse_loss(x, y),
        lambda x, y: functional.mse_loss(x, y, reduction="mean"),
        lambda x, y: torch.nn.MSELoss()(x, y),
    ],
    "float64": [
        lambda x, y: x.double(),
        lambda x, y: x.to(torch.float64),
        lambda x, y: x.to(dtype=torch.float64, copy=False),
        lambda x, y: x.type(torch.float64),
    ],
    "cpu": [lambda x, y: x.cpu(), lambda x, y: x.to("cpu"), lambda x, y: x.to(device="cpu")],
    "subscript": [lambda x, y: x[0], lambda x, y: x.__getitem__(0)],
    "zeros": [
        lambda x, y: torch.zeros(2, 3),
        lambda x, y: torch.zeros((2, 3)),
        lambda x, y: torch.zeros(size=[2, 3], dtype=None),
    ],
    "arange": [
        lambda x, y: torch.arange(0, 5),
        lambda x, y: torch.arange(start=0, end=5),
        lambda x, y: torch.arange(0, 5, 1),
    ],
}


@pytest.mark.parametrize("name", SAME)
def test_spellings_resolve_to_one_call(name: str) -> None:
    first, *others = SAME[name]
    expected = only_call(first, matrix(), matrix() + 1)
    for other in others:
        assert only_call(other, matrix(), matrix() + 1) == expected


@pytest.mark.parametrize(("name", "index"), [(name, index) for name in SAME for index in range(len(SAME[name]))])
def test_spellings_do_what_eager_does(name: str, index: int) -> None:
    assert_same_behaviour(SAME[name][index], lambda: Arguments(matrix(), matrix() + 1), resolved)


SCALARS = [2, 2.5, True, 3 + 1j]
OPERANDS = [
    torch.tensor([1, 2, 3]),
    torch.tensor([1.5, -2.5, 3.0]),
    torch.tensor([True, False]),
    torch.tensor(2.0).half(),
]
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_with_python_scalars_on_either_side(operator: str) -> None:
    function = OPERATORS[operator]
    for scalar in SCALARS:
        for tensor in OPERANDS:
            assert_same_behaviour(lambda x, s=scalar: function(x, s), lambda t=tensor: Arguments(t.clone()), resolved)
            assert_same_behaviour(lambda x, s=scalar: function(s, x), lambda t=tensor: Arguments(t.clone()), resolved)


def test_comparison_with_none_is_identity() -> None:
    assert_same_behaviour(lambda x: (x == None, x != None), lambda: Arguments(matrix()), resolved)  # noqa: E711


def test_arguments_that_do_not_fit_keep_their_spelling() -> None:
    x = matrix()
    symbol, _, kwargs = registry.resolve(functional.softmax, (x,), {"dim": None, "_stacklevel": 3, "dtype": None})
    assert symbol.target is functional.softmax
    assert kwargs == {"dim": None, "_stacklevel": 3, "dtype": None}
    assert registry.resolve(torch.Tensor.add, (x, 2, x), {})[0].name == "add"


def test_arguments_that_only_the_printed_function_takes_are_left_to_it() -> None:
    symbol, args, kwargs = registry.resolve(functional.silu, (1, 2, 3), {})
    assert (symbol.target, args, kwargs) == (functional.silu, (1, 2, 3), {})
    assert registry.symbol_named("torch.nn.functional.silu").target is not functional.silu


def test_tensors_are_never_compared_with_defaults() -> None:
    symbol, args, _ = registry.resolve(torch.Tensor.clamp, (matrix(),), {"min": torch.tensor(1.0), "max": None})
    assert symbol.name == "torch.clamp"
    assert len(args) == 2


def test_equal_numbers_of_other_types_are_no_defaults() -> None:
    _, _, kwargs = registry.resolve(torch.Tensor.add, (matrix(), 1), {"alpha": 1.0})
    assert kwargs == {"alpha": 1.0}


def test_properties() -> None:
    x = matrix()
    assert only_call(lambda x: x.T, x) == ("T", ("argument 0",), {})
    assert registry.resolve(torch.Tensor.T.__get__, (x,), {})[0].style is CallStyle.ATTRIBUTE
    assert only_call(lambda x: setattr(x, "data", x), x)[0] == "thunder_core.symbols.set_data"
    assert only_call(lambda x: setattr(x, "requires_grad", True), x)[1:] == (("argument 0", True), {})
    assert only_call(lambda x: x.__delattr__("grad"), x)[1] == ("argument 0", None)


def test_statements_return_their_tensor() -> None:
    x = matrix()
    symbol, args, _ = registry.resolve(torch.Tensor.__setitem__, (x, 0, 5.0), {})
    assert symbol.target(*args) is x
    assert x[0].tolist() == [5.0] * 3
    assert symbol.target is thunder_core.symbols.setitem


def test_operators_of_torch_ops() -> None:
    assert registry.resolve(torch.ops.aten.add.Tensor, (1, 2), {})[0].name == "torch.ops.aten.add.Tensor"
    assert registry.resolve(torch.ops.aten.add, (1, 2), {})[0].name == "torch.ops.aten.add"


def test_functions_that_pytorch_generated_for_operators() -> None:
    aten = torch.ops.aten
    assert torch_function(aten.add.Tensor) is torch.add
    assert torch_function(aten.add_.Tensor) is torch.Tensor.add_
    assert torch_function(aten.binary_cross_entropy_with_logits.default) is None  # the function has another default
    assert torch_function(aten.index_put.default) is None  # the function takes no list with None
    assert torch_function(aten.gelu.default) is None
    assert torch_function(torch.ops.prims.sin.default) is None  # a name of ATen's in another namespace


def test_opaque_symbols_are_cached_by_function() -> None:
    first = registry.resolve(torch.lu_unpack, (), {})[0]
    assert first is registry.resolve(torch.lu_unpack, (), {})[0]
    assert first is registry.symbol_named("torch.lu_unpack")
    assert Tag.OPAQUE in first.tags


@young_heap()
def test_local_functions_are_not_kept_alive() -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x

    symbol, _, _ = registry.resolve(local, (), {})
    assert Tag.LOCAL in symbol.tags
    reference = weakref.ref(local)
    del symbol, local
    gc.collect()
    assert reference() is None


def test_unknown_names_raise() -> None:
    for name, style in [
        ("torch.no_such", CallStyle.FUNCTION),
        ("no_such", CallStyle.METHOD),
        ("no", CallStyle.ATTRIBUTE),
    ]:
        with pytest.raises(LookupError):
            registry.symbol_named(name, style)


def test_registries_agree_whatever_is_asked_first() -> None:
    fresh = Registry()
    inplace = fresh.symbol_named("add_", CallStyle.METHOD)
    assert inplace is fresh.resolve(torch.Tensor.add_, (1, 2), {})[0]
    assert inplace.functional is fresh.symbol_named("torch.add")
    assert fresh.symbol_named("torch.add") is fresh.resolve(torch.Tensor.__add__, (1, 2), {})[0]


def test_metadata() -> None:
    x = matrix()
    readers = [
        lambda: x.shape, lambda: x.size(0), lambda: x.dim(), lambda: x.stride(), lambda: x.numel(), lambda: x.dtype,
        lambda: x.device, lambda: x.is_contiguous(), lambda: x.storage_offset(), lambda: x.is_floating_point(),
        lambda: x.is_cuda, lambda: x.layout, lambda: x.ndim, lambda: x.element_size(), lambda: x.nelement(),
        lambda: x.requires_grad, lambda: torch.result_type(x, 1), lambda: torch.is_complex(x), lambda: x.is_leaf,
        lambda: len(x),
    ]  # fmt: skip
    with Calls() as calls:
        for reader in readers:
            reader()
    assert not calls.resolved
    assert not registry.is_metadata(torch.Tensor.add)


def _define(factor: int, *others: str) -> torch.library.Library:
    library = torch.library.Library("thunder_test_redefined", "FRAGMENT")
    for name in (*others, "scale"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x * factor, "CompositeExplicitAutograd")
    return library


def test_an_operator_that_is_defined_again_is_the_new_one() -> None:
    """PyTorch frees the old operator: its memory may be that of another one by then."""
    operators = torch.ops.thunder_test_redefined
    names = ["torch.ops.thunder_test_redefined.scale", "torch.ops.thunder_test_redefined.scale.default"]
    library = _define(2)
    for func in (operators.scale, operators.scale.default):
        registry.resolve(func, (torch.ones(2),), {})
    library._destroy()
    library = _define(3, *[f"other_{number}" for number in range(20)])
    assert [registry.symbol_named(name).target for name in names] == [operators.scale, operators.scale.default]
    for func in (operators.scale, operators.scale.default):
        symbol, args, _ = registry.resolve(func, (torch.ones(2),), {})
        assert symbol.target(*args).tolist() == [3.0, 3.0]
    library._destroy()


def test_calls_of_an_operator_that_is_defined_again_before_its_name_is_looked_up() -> None:
    operators = torch.ops.thunder_test_redefined
    library = _define(2)
    before = registry.resolve(operators.scale, (torch.ones(2),), {})[0]
    library._destroy()
    library = _define(3)
    after = registry.resolve(operators.scale, (torch.ones(2),), {})[0]
    assert before is not after
    assert after.target is operators.scale
    assert registry.symbol_named(after.name) is after
    library._destroy()


def test_numpy_names_of_keyword_only_parameters() -> None:
    numpy = only_call(lambda x: torch.var(x, axis=0, correction=1, keepdims=True), matrix())
    assert numpy == only_call(lambda x: torch.var(x, dim=0, correction=1, keepdim=True), matrix())
    assert numpy[2]["keepdim"] is True
