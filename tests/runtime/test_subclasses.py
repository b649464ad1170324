"""Tensor subclasses without tensors inside: what `__torch_function__` makes of calls is recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as functional_collectives
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import thunder
from thunder_core.errors import UnsupportedError

FUNCTIONS = [torch.overrides.has_torch_function_unary]


class Image(Tensor):
    """A subclass that changes nothing; its results are of its class."""

    def brighter(self) -> Tensor:
        return self + 1


class Photo(Image):
    """One below it."""


class Unhanded(Tensor):
    """Calls are not handed to it; results are plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Rewrapping(Tensor):
    """Only clones are of its class."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(cls) if func is Tensor.clone else result


class Tenfold(nn.Parameter):
    """Changes linear layers."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            with torch._C.DisableTorchFunctionSubclass():
                return F.linear(args[0], args[1] * 10, *args[2:], **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


class Tagged(Tensor):
    """Has an attribute, which results inherit."""

    @staticmethod
    def __new__(cls, data: Tensor, tag: int) -> Tagged:
        return data.as_subclass(cls)

    def __init__(self, data: Tensor, tag: int) -> None:
        self.tag = tag

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        tags = [item.tag for item in args if isinstance(item, Tagged) and hasattr(item, "tag")]
        if isinstance(result, cls) and tags:
            result.tag = tags[0]
        return result

    def tagged(self) -> Tensor:
        return self * self.tag


class Slotted(Tensor):
    """Looks otherwise in C."""

    __slots__ = ("note",)


def _kinds(x: Tensor) -> Any:
    kinds = [kind for kind in (Tensor, Image, Photo) if type(x) is kind]
    others = [kind for kind in (Tensor, Image, Photo) if x.__class__ is kind]
    return x + 1 if kinds == [Tensor] else x + 2, kinds[0], others[0], type(x).__name__, str(type(x).__mro__)


def _with_attributes_of(x: Tensor, other: Tensor) -> Tensor:
    other.note = "a note"  # type: ignore[attr-defined]
    vars(x).update(vars(other))
    return x


def numbers(*shape: int) -> Tensor:
    return torch.randn(*(shape or (3,)))


def plain(value: Tensor) -> Tensor:
    return value.as_subclass(Tensor)


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, Tensor):
        torch.testing.assert_close(plain(one), plain(other), rtol=0, atol=0)
        assert one.requires_grad == other.requires_grad
        assert {**vars(one)} == {**vars(other)}
    else:
        assert one == other


def copied(value: Any) -> Any:
    """Another tensor with the values, the class and the attributes of one; anything else is itself."""
    if not isinstance(value, Tensor):
        return value
    copy = plain(value).clone().as_subclass(type(value))
    vars(copy).update(vars(value))
    return copy


def image() -> Tensor:
    return numbers().as_subclass(Image)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "made inside": (lambda x: torch.tanh(x.as_subclass(Image)) * 3, lambda: (numbers(),)),
    "made of a result": (lambda x: (x * 2).as_subclass(Image) + 1, lambda: (numbers(),)),
    "plain again": (lambda x: (x.as_subclass(Image) + 1).as_subclass(Tensor), lambda: (numbers(),)),
    "_make_subclass": (lambda x: Tensor._make_subclass(Image, x) * 2, lambda: (numbers(),)),
    "argument": (lambda x: torch.tanh(x) * 3, lambda: (image(),)),
    "returned": (lambda x: (x, x * 2), lambda: (image(),)),
    "class of results": (lambda x: (isinstance(x + 1, Image), (x + 1).__class__ is Image), lambda: (image(),)),
    "class of plain results": (lambda x: isinstance(x + 1, Image), lambda: (numbers(),)),
    "exact class of results": (lambda x: _kinds(x * 2), lambda: (image(),)),
    "exact class of plain results": (lambda x: _kinds(x * 2), lambda: (numbers(),)),
    "exact class of what is made inside": (lambda x: _kinds(x.as_subclass(Image) * 2), lambda: (numbers(),)),
    "looked up by class": (lambda x: x * {Tensor: 2, Image: 3, Photo: 4}[type(x + 1)], lambda: (numbers(),)),
    "constructed again": (lambda x: type(x * 2)([1.0, 2.0, 3.0]) + x, lambda: (numbers(),)),
    "attributes of a result": (lambda x: (vars(x * 2), hasattr(x * 2, "variable"), x * 2), lambda: (numbers(),)),
    "attributes copied": (lambda x: _with_attributes_of(x * 3, x * 2), lambda: (numbers(),)),
    "with slots": (lambda x: (type(x.as_subclass(Slotted) + 1) is Slotted, x + 1), lambda: (numbers(),)),
    "methods of results": (lambda x: (x * 2).brighter(), lambda: (image(),)),
    "several results": (lambda x: tuple(x.max(0)), lambda: (numbers(3, 3).as_subclass(Image),)),
    "in a list": (lambda values: torch.stack(values), lambda: ([image(), numbers()],)),
    "of two classes": (lambda x, y: (x + y, y + x), lambda: (image(), numbers().as_subclass(Photo))),
    "written": (lambda x: (x.add_(1), x * 2), lambda: (image(),)),
    "plain, written with it": (lambda x, y: x.add_(y), lambda: (numbers(), image())),
    "view, written": (lambda x: (x.as_subclass(Image).add_(1), x * 2)[1], lambda: (numbers(),)),
    "view of a result, written": (lambda x: _written(x * 2), lambda: (numbers(),)),
    "not handed calls": (lambda x: (x * 2, x.clone()), lambda: (numbers().as_subclass(Unhanded),)),
    "rewraps clones": (lambda x: (x * 2, x.clone(), x.clone() * 2), lambda: (numbers().as_subclass(Rewrapping),)),
    "attributes": (lambda x: ((x + 1).tagged(), (x + 1).tag), lambda: (Tagged(numbers(), 3),)),
    "attributes, made inside": (lambda x: Tagged(x, 5).tagged(), lambda: (numbers(),)),
    "parameter used inside": (lambda x: nn.Parameter(x) * 2, lambda: (numbers(),)),
    "mapped": (lambda x: torch.vmap(lambda row: row * 2)(x), lambda: (numbers(3, 3).as_subclass(Image),)),
    "shape": (lambda x: x.reshape(x.shape[0], -1).sum(-1), lambda: (numbers(2, 3).as_subclass(Image),)),
}


def _written(value: Tensor) -> Tensor:
    value.as_subclass(Image).add_(1)
    return value


@pytest.mark.parametrize("executors", [[], None], ids=["reference", "default"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_as_in_eager(name: str, executors: Any) -> None:
    program, arguments = PROGRAMS[name]
    compiled = thunder.jit(program) if executors is None else thunder.jit(program, executors=executors)
    for _ in range(3):
        given = arguments()
        torch.manual_seed(0)
        own = tuple(map(copied, given))
        assert_same(compiled(*own), program(*given))
        for one, other in zip(own, given, strict=True):
            if isinstance(one, Tensor):
                assert_same(one, other)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("make", [lambda x: x.as_subclass(Image), lambda x: Tagged(x, 2)], ids=["Image", "Tagged"])
def test_gradients_of_arguments(make: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.tanh(x) * x

    compiled = thunder.jit(program)
    for _ in range(2):
        x = make(numbers()).requires_grad_()
        expected, result = program(x), compiled(x)
        assert_same(result, expected)
        gradients = [torch.autograd.grad(value, x, torch.ones(3)) for value in (result, expected)]
        assert_same(*gradients)
        x.grad = None
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, plain(gradients[1][0]), rtol=0, atol=0)
        assert type(x.grad) is Tensor  # as the engine makes it, whatever the class of the leaf


def test_second_derivatives() -> None:
    x = image().requires_grad_()

    def twice(function: Callable[..., Tensor]) -> Tensor:
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    def program(x: Tensor) -> Tensor:
        return torch.tanh(x) * x

    torch.testing.assert_close(plain(twice(thunder.jit(program))), plain(twice(program)))


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Tenfold(torch.randn(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


def test_a_parameter_that_changes_linear_layers_does_so_in_backward_too() -> None:
    module = Linear()
    compiled = thunder.jit(module)
    for _ in range(2):
        x = numbers(4, 3)
        expected = module(x)
        (gradient,) = torch.autograd.grad(expected.square().sum(), module.weight)
        result = compiled(x)
        assert_same(result, expected)
        assert_same(torch.autograd.grad(result.square().sum(), module.weight)[0], gradient)


def test_the_class_is_guarded() -> None:
    def program(x: Tensor) -> Tensor:
        return x.clone()

    compiled = thunder.jit(program)
    for kind in (Tensor, Image, Photo, Rewrapping, Tensor, Image):
        assert type(compiled(numbers().as_subclass(kind))) is kind
    assert thunder.cache_misses(compiled) == 4


def test_a_class_that_refuses_an_operation_raises_its_own_error() -> None:
    class NoProducts(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.mm:
                raise ValueError("no products")
            return super().__torch_function__(func, types, args, kwargs or {})

    with pytest.raises(ValueError, match="no products"):
        thunder.jit(lambda x: torch.mm(x, x))(numbers(3, 3).as_subclass(NoProducts))
    with pytest.raises(TypeError, match="no implementation found"):
        thunder.jit(lambda x, y: torch.add(x, y))(image(), numbers().as_subclass(Tagged))


# --------------------------------------------------------------------------------------------------- refused


def fake() -> Tensor:
    with FakeTensorMode():
        return torch.empty(3)


def nested(layout: torch.layout) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([numbers(2), numbers(3)], layout=layout)


REFUSED: dict[str, tuple[Callable[[], Tensor], str]] = {
    "fake": (fake, "FakeTensor"),
    "nested": (lambda: nested(torch.strided), "nested"),
    "functional": (lambda: torch._to_functional_tensor(numbers()), "functional"),
}


@pytest.mark.parametrize("place", ["argument", "buffer", "global", "closure"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_acts_below_is_refused_with_class_and_line(kind: str, place: str) -> None:
    make, name = REFUSED[kind]
    value = make()

    def program(x: Tensor) -> Tensor:
        return value * 2 if place == "closure" else (GLOBAL["value"] if place == "global" else x) * 2

    GLOBAL["value"] = value
    module = nn.Module()
    module.register_buffer("value", value)
    module.forward = lambda: module.value * 2  # type: ignore[method-assign]
    compiled, arguments = thunder.jit(program), (value if place == "argument" else numbers(),)
    if place == "buffer":
        compiled, arguments = thunder.jit(module), ()
    with pytest.raises(UnsupportedError, match=name) as caught:
        compiled(*arguments)
    assert "test_subclasses.py" in str(caught.value)
    GLOBAL.clear()


GLOBAL: dict[str, Tensor] = {}


def test_retained_gradients_of_computed_tensors_are_refused() -> None:
    def program(w: Tensor) -> Tensor:
        image = w.as_subclass(Image) * 2
        image.retain_grad()
        return image

    weight = torch.randn(3, requires_grad=True)
    expected = program(weight)
    expected.sum().backward()
    assert expected.grad is not None
    with pytest.raises(UnsupportedError, match="a tensor whose gradient is to be retained is of the class"):
        thunder.jit(program)(weight)


@pytest.mark.parametrize("program", [lambda x: Image(x) * 2, lambda x: Image(x + 1)])
def test_constructors_in_c_are_refused(program: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnsupportedError, match="as_subclass"):
        thunder.jit(program)(numbers())


def test_a_parameter_that_the_program_makes_and_returns_is_eagers() -> None:
    x = numbers()
    result = thunder.jit(lambda x: nn.Parameter(x))(x)
    assert type(result) is nn.Parameter
    assert result.is_leaf
    assert torch.equal(result, x)


@pytest.fixture
def mesh() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    from thunder_core.pytorch_internals import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (2,))
    finally:
        torch.distributed.destroy_process_group()


def test_tensor_is_left_as_it_was() -> None:
    before = dict(vars(Tensor))
    thunder.jit(lambda x: x.as_subclass(Image) * 2)(numbers())
    assert dict(vars(Tensor)) == before


class Measured:
    """No tensor; handles calls of PyTorch's functions all the same."""

    def __init__(self, value: Tensor, unit: int) -> None:
        self.value, self.unit = value, unit

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        units = [arg.unit for arg in args if isinstance(arg, Measured)]
        values = [arg.value if isinstance(arg, Measured) else arg for arg in args]
        return Measured(func(*values, **(kwargs or {})) * sum(units), sum(units))


def test_classes_that_are_no_tensors_handle_calls() -> None:
    def program(x: Tensor, measured: Measured) -> tuple[Tensor, int]:
        result = torch.add(torch.mul(x, Measured(x, 2)), measured)
        return result.value, result.unit

    compiled = thunder.jit(program)
    for unit in (3, 4, 3):
        x = numbers()
        expected, found = program(x, Measured(x, unit)), compiled(x, Measured(x, unit))
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]


class Product(torch.autograd.Function):
    """A product."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return left * right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        left, right = ctx.saved_tensors
        return gradients[0] * right, gradients[0] * left


@pytest.mark.parametrize(
    "program",
    [
        lambda x, image: Product.apply(x, image),
        lambda x, image: Product.apply(image, x),
        lambda x, image: Product.apply(x, image * 2),
        lambda x, image: Product.apply(x, x.as_subclass(Image)),
        lambda x, image: print(image * 2),
        lambda x, image: print("pair", [x, image.detach()]),
        lambda x, image: print(x.as_subclass(Image)),
    ],
)
def test_where_the_class_would_be_lost_it_is_refused_with_class_and_line(program: Callable[..., Any]) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedError, match=r"Image") as caught:
        thunder.jit(program)(x, torch.ones(3).as_subclass(Image))
    assert __file__ in str(caught.value)


def test_plain_tensors_of_subclasses_pass() -> None:
    def program(x: Tensor, image: Tensor) -> Tensor:
        return Product.apply(x, image.as_subclass(Tensor)).as_subclass(Image)

    x, image = torch.ones(3, requires_grad=True), torch.arange(3.0).as_subclass(Image)
    result = thunder.jit(program)(x, image)
    assert type(result) is Image
    result.sum().backward()
    assert torch.equal(x.grad, torch.arange(3.0))


def test_classes_as_results_are_those_of_the_user() -> None:
    compiled = thunder.jit(lambda x, image: (type(x * 2), type(image * 2)))
    assert compiled(torch.ones(3), torch.ones(3).as_subclass(Image)) == (Tensor, Image)


def test_arguments_of_subclasses_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    thunder.jit(lambda image: print(image))(torch.ones(2).as_subclass(Image))
    assert capsys.readouterr().out == "Image([1., 1.])\n"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.func.jvp(torch.sin, (x.as_subclass(Image).sum(),), (torch.ones(()),))[1],
        lambda x: torch.func.grad(lambda y: torch.tanh(y.as_subclass(Image)).sum())(x),
    ],
    ids=["argument", "inside"],
)
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # jvp imports what uses it
def test_under_functorch_a_tensor_that_becomes_one_of_a_class_is_refused(program: Callable[..., Any]) -> None:
    program(torch.ones(2))
    with pytest.raises(UnsupportedError, match=r"under a transformation of torch\.func, a tensor .* one of Image"):
        thunder.jit(program)(torch.ones(2))


def assigns_gradient(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    weight.grad = x.as_subclass(Image).sin()
    return weight * 2


def communicates(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return functional_collectives.all_reduce(x.as_subclass(Image).sin(), "sum", torch.distributed.group.WORLD) + weight


@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize(
    ("program", "what"), [(assigns_gradient, "assigned to an attribute"), (communicates, "communicated")]
)
def test_computed_tensors_of_a_subclass_are_refused_where_their_class_would_be_lost(program: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"a tensor to be {what} is of the class"):
        thunder.jit(program)(numbers().requires_grad_(), numbers())


def test_a_view_that_is_an_argument_of_a_subclass_may_be_written() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.as_subclass(Image) * 1
        z[0] = y[1]
        return z

    x, y = numbers(), numbers().requires_grad_()
    assert torch.equal(thunder.jit(program)(x, y), program(x, y))


class ViewsLost(Tensor):
    """``view_as`` gives plain tensors, all else is of the class."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result.as_subclass(Tensor) if func is Tensor.view_as else result


class ViewsChanged(Tensor):
    """``view_as`` computes something else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result + 1 if func is Tensor.view_as else result


class Inner(nn.Module):
    """Says of which classes its arguments are, and has results of several."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.kinds: list[str] = []

    def forward(self, x: Tensor, y: Tensor, z: int) -> tuple[Tensor, int, Tensor, Tensor]:
        self.kinds += [type(x).__name__, type(y).__name__]
        return x * self.scale, z, y.sin(), (x + y).as_subclass(Tensor)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("kind", [Image, Photo, Rewrapping, Unhanded, ViewsLost])
@pytest.mark.parametrize("hook", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.battery
def test_modules_with_backward_hooks_hand_on_the_class(kind: type[Tensor], hook: str, gradients: bool) -> None:
    found = []
    for compile in (lambda function: function, lambda function: thunder.jit(function, executors=[])):
        module, seen = Inner(), []

        def program(x: Tensor, y: Tensor, module: nn.Module) -> tuple[Any, ...]:
            return module(torch.tanh(x.as_subclass(kind)), y * 2, 3)

        getattr(module, hook)(lambda *args, seen=seen: seen.append([type(g) for values in args[1:] for g in values]))
        compiled = compile(program)
        for _ in range(2):
            x, y = torch.linspace(0, 1, 3), torch.linspace(1, 2, 3).requires_grad_(gradients)
            results = compiled(x.requires_grad_(gradients), y, module)
            sum(plain(value).sum() for value in results if isinstance(value, Tensor)).backward()
            found.append((results, module.kinds, module.scale.grad.clone(), x.grad, y.grad, seen))
    for one, other in zip(found[:2], found[2:], strict=True):
        assert_same(other[0], one[0])
        assert other[1] == one[1]
        assert other[5] == one[5]
        torch.testing.assert_close(other[2:5], one[2:5])


def test_a_class_that_computes_in_place_of_the_view_of_a_module_with_hooks_is_refused() -> None:
    module = Inner()
    module.register_full_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match=r"ViewsChanged overrides view_as"):
        thunder.jit(lambda x: module(x.as_subclass(ViewsChanged), x, 3))(torch.ones(3, requires_grad=True))


def test_a_program_asks_whether_calls_are_handed_on() -> None:
    """It does not know the recorder."""
    overrides = torch.overrides

    def program(x: Tensor, other: Any) -> Any:
        y = F.relu(x) * 2
        asked = (
            overrides.has_torch_function((x, other)),
            overrides.has_torch_function_unary(other),
            overrides.has_torch_function_unary(y),
            overrides.has_torch_function_variadic(y, other),
        )
        return y, asked

    class Handed:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    for x in (numbers(), numbers().as_subclass(Image), numbers().as_subclass(Unhanded), nn.Parameter(numbers())):
        for other in (3, None, x, Handed()):
            expected, actual = program(x, other), thunder.jit(program)(x, other)
            assert actual[1] == expected[1], (type(x), other)
            assert type(actual[0]) is type(expected[0])
            assert torch.equal(actual[0], expected[0])


def test_has_torch_function_by_another_name() -> None:
    """Functions of the user's that classes may override, as PyTorch's documentation writes them."""
    handle_torch_function, has_torch_function_unary = torch.overrides.handle_torch_function, FUNCTIONS[0]
    calls = []

    def doubled(x: Tensor) -> Tensor:
        if has_torch_function_unary(x) or FUNCTIONS[0](x) or torch.overrides.has_torch_function((x,)):
            return handle_torch_function(doubled, (x,), x)
        calls.append(len(x))
        return F.relu(x) * 2

    compiled = thunder.jit(lambda x: doubled(x) + has_torch_function_unary(x))
    for _ in range(2):
        x = numbers()
        assert torch.equal(compiled(x), doubled(x))
    assert len(calls) == 4
