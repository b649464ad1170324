"""Python in programs: arguments and results of all kinds, control flow, generators, context managers."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from thunder_testing import Arguments


class Pair(NamedTuple):
    left: torch.Tensor
    right: Any


@dataclasses.dataclass
class Settings:
    scale: float
    shift: torch.Tensor | None = None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    power: int = 2


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Plain:
    """An object of no particular kind."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.calls = 0


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (2, 3))


def takes_defaults(x: torch.Tensor, scale: float = 2.0, *more: torch.Tensor, flag: bool = False, **rest: Any) -> Any:
    y = x * scale + sum(more)
    return (y if flag else -y), rest


def returns_containers(x: torch.Tensor) -> Any:
    return {
        "list": [x + 1, (x * 2, None)], "text": "text", "number": 3, "float": 1.5, "bool": True, "complex": 1j,
        "size": x.shape, "dtype": x.dtype, "device": x.device, "pair": Pair(x.sum(), "right"), "empty": [], 5: (),
        "ordered": collections.OrderedDict(a=x.t()), "default": collections.defaultdict(list, a=[x + 3]),
        "set": {1, 2}, "range": range(3), "slice": slice(1, 2), "color": Color.RED, "frozenset": frozenset({1}),
    }  # fmt: skip


def returns_dataclasses(x: torch.Tensor) -> Any:
    return Settings(2.0, x + 1, ("a",)), Frozen(x * 2), Plain(x - 1)


def takes_dataclass(settings: Settings, frozen: Frozen) -> Any:
    settings.names += ("seen",)
    return settings.shift * settings.scale, frozen.x**frozen.power, settings


def takes_namedtuple(pair: Pair) -> Pair:
    return pair._replace(left=pair.left + pair.right["a"])


def returns_its_input(x: torch.Tensor, y: Any) -> Any:
    return y, x, {"x": x}, x.sum()


def returns_torch_namedtuple(x: torch.Tensor) -> Any:
    return torch.max(x, dim=0), torch.topk(x, 2), torch.linalg.qr(x)


def returns_same_object_twice(x: torch.Tensor) -> Any:
    y = x + 1
    box = [y]
    return y, y, box, box, {"y": y}


def returns_nothing(x: torch.Tensor) -> None:
    x.sin()


def returns_constant(x: torch.Tensor) -> Any:
    return 3


def returns_views(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y[0], y.t(), y.view(-1), x[:1], x.view(3, 2)


def loops(x: torch.Tensor, n: int) -> torch.Tensor:
    for i in range(n):
        if i % 2:
            continue
        x = x + i
    while n > 0:
        x, n = x * 2, n - 1
    else:
        x = x - 1
    return x


def iterates_tensors(x: torch.Tensor) -> Any:
    rows = [row * i for i, row in enumerate(x)]
    a, b = x.unbind()
    first, *rest = x.t()
    return rows, a + b, first, rest, len(x), list(zip(x, x, strict=True))


def branches_on_metadata(x: torch.Tensor) -> Any:
    if x.dim() == 2 and x.shape[0] < x.size(1) and x.is_contiguous() and not x.requires_grad:
        return x.reshape(x.numel()) / x.shape[-1]
    return x


def comprehends(x: torch.Tensor) -> Any:
    return torch.stack([x * k for k in range(3)]), {k: x + k for k in "ab" and (1, 2)}, tuple(x + i for i in range(2))


def makes_generator(x: torch.Tensor) -> Any:
    def pieces(n: int) -> Iterator[torch.Tensor]:
        for i in range(n):
            got = yield x + i
            assert got is None

    return sum(pieces(3)), torch.cat(list(itertools.islice(pieces(5), 2)))


def uses_finally(x: torch.Tensor) -> Any:
    steps = []
    try:
        try:
            x = x + 1
            raise KeyError("inner")
        except KeyError as error:
            steps.append(str(error))
            x = x * 2
        else:
            steps.append("else")
    finally:
        steps.append("finally")
        x = x - 3
    return x, steps


def catches_torch_error(x: torch.Tensor) -> torch.Tensor:
    try:
        return x @ x
    except RuntimeError:
        return x @ x.t()


@contextlib.contextmanager
def scaled(log: list[str]) -> Iterator[float]:
    log.append("enter")
    try:
        yield 2.0
    finally:
        log.append("exit")


def uses_context_managers(x: torch.Tensor) -> Any:
    log: list[str] = []
    with scaled(log) as scale, contextlib.suppress(ZeroDivisionError):
        x = x * scale
        x = x / (1 // 0)
    return x, log


def uses_closures(x: torch.Tensor) -> Any:
    total = x

    def add(y: torch.Tensor) -> None:
        nonlocal total
        total = total + y

    add(x * 2)
    add(x * 3)
    return total, functools.reduce(torch.add, [x, x, x]), functools.partial(torch.add, alpha=2)(x, x)


def uses_strings(x: torch.Tensor) -> Any:
    name = f"{x.shape}-{x.dtype}-{tuple(x.stride())}"
    return name, x + len(name), f"{x.shape[0]:d}", isinstance(x, torch.Tensor), type(x) is torch.Tensor


def uses_hash(x: torch.Tensor) -> Any:
    y = x + 1
    seen = {x: "x", y: "y"}
    return [seen[x], seen[y], y in seen, any(y is key for key in seen)]


def matches(x: torch.Tensor, what: Any) -> torch.Tensor:
    match what:
        case {"scale": float(scale)}:
            return x * scale
        case [first, *_]:
            return x + first
        case str():
            return x - len(what)
        case _:
            return x


def uses_numbers(x: torch.Tensor, n: int, f: float, c: complex) -> Any:
    return x + n, x * f, n * f, x * c, x**n, n - x, f / x, n // 2, x.new_full((2,), f), torch.full((2,), n)


def uses_star(x: torch.Tensor, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
    return takes_defaults(x, 1.0, *args, flag=True, **kwargs)


def mutates_argument_containers(x: torch.Tensor, items: list[Any], table: dict[str, Any]) -> None:
    items.append(x + 1)
    items[0] = x
    table["new"] = x * 2
    table.pop("old")


def deletes(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = y * 2
    del y
    return z


def asserts(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[0] == 2, "two rows"
    return x


def recursive(x: torch.Tensor, depth: int = 4) -> torch.Tensor:
    return x if depth == 0 else recursive(x.relu() + 1, depth - 1)


def walrus_and_lambda(x: torch.Tensor) -> Any:
    return [y := x + 1, y * 2], (lambda z, k=2: z * k)(x)


PROGRAMS: dict[Callable[..., Any], Callable[[], Any]] = {
    takes_defaults: lambda: Arguments(t(), 3.0, t(), t(), flag=True, extra=t(), other="text"),
    returns_containers: lambda: (t(),),
    returns_dataclasses: lambda: (t(),),
    takes_dataclass: lambda: (Settings(3.0, t(), ("a", "b")), Frozen(t(), 3)),
    takes_namedtuple: lambda: (Pair(t(), {"a": t()}),),
    returns_its_input: lambda: (t(), [t(), {"a": None}, "text"]),
    returns_torch_namedtuple: lambda: (t(),),
    returns_same_object_twice: lambda: (t(),),
    returns_nothing: lambda: (t(),),
    returns_constant: lambda: (t(),),
    returns_views: lambda: (t(),),
    loops: lambda: (t(), 5),
    iterates_tensors: lambda: (t(),),
    branches_on_metadata: lambda: (t(),),
    comprehends: lambda: (t(),),
    makes_generator: lambda: (t(),),
    uses_finally: lambda: (t(),),
    catches_torch_error: lambda: (t(),),
    uses_context_managers: lambda: (t(),),
    uses_closures: lambda: (t(),),
    uses_strings: lambda: (t(),),
    uses_hash: lambda: (t(),),
    matches: lambda: (t(), {"scale": 2.0}),
    uses_numbers: lambda: (t(), 3, 2.5, 1 + 2j),
    uses_star: lambda: Arguments(t(), t(), t(), a=t()),
    mutates_argument_containers: lambda: (t(), [1, t()], {"old": t()}),
    deletes: lambda: (t(),),
    asserts: lambda: (t(),),
    recursive: lambda: (t(),),
    walrus_and_lambda: lambda: (t(),),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, PROGRAMS[program])


@pytest.mark.parametrize("what", ["text", [2, 3], None, {"scale": 2.0}, {"scale": 2}], ids=str)
def test_match(what: Any, check: Callable[..., None]) -> None:
    check(matches, lambda: (t(), what))


@pytest.mark.parametrize(
    "argument",
    [None, 3, 2.5, True, 1j, "text", b"bytes", torch.float64, torch.device("cpu"), torch.Size([2]), Color.BLUE,
     slice(1), Ellipsis, range(3), (), [], {}, {1, 2}, (1, [2, {"a": None}]), int, torch.add, float("inf"), -0.0],
)  # fmt: skip
def test_argument_kinds(argument: Any, check: Callable[..., None]) -> None:
    def program(x: torch.Tensor, value: Any, *, named: Any = None) -> Any:
        return x + 1, value, named, (x * 2 if value else x * 3)

    check(program, lambda: Arguments(t(), argument, named=argument))


def test_nan_argument(check: Callable[..., None]) -> None:
    check(lambda x, value: x * value, lambda: (t(), float("nan")))


def test_hugging_face_output(check: Callable[..., None]) -> None:
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    def program(output: Any) -> Any:
        hidden = output.last_hidden_state + output[1]
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=hidden.mean(0)), output

    check(program, lambda: (BaseModelOutputWithPooling(last_hidden_state=t(), pooler_output=t()),))


def test_callable_object(check: Callable[..., None]) -> None:
    class Program:
        def __init__(self) -> None:
            self.weight = torch.ones(3)
            self.factor = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight * self.factor

    check(Program(), lambda: (t(),))


def test_partial(check: Callable[..., None]) -> None:
    check(functools.partial(takes_defaults, flag=True), lambda: (t(), 3.0))


@pytest.mark.parametrize("function", [torch.sin, torch.nn.functional.gelu, torch.Tensor.relu])
def test_builtin_function(function: Callable[..., Any], check: Callable[..., None]) -> None:
    check(function, lambda: (t(),))


def test_constants_fold(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor) -> Any:
        n = torch.arange(4).sum().item()
        mask = torch.ones(3, 3).tril().bool()
        if torch.eye(2).sum() > 1 and mask.any():
            x = x * n
        return x, n, torch.tensor([1, 2]).tolist(), int(torch.tensor(3)), mask[mask].shape, torch.linspace(0, 1, 3)

    check(program, lambda: (t(),))
