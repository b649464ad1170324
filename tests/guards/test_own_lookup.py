"""Objects whose class answers ``object.name`` or ``dictionary[key]`` in its own way."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

import thunder
from thunder_core.errors import UnsupportedError
from thunder_frontend.observe.lookup_methods import is_pure_lookup


class Mapped:
    attribute_map: ClassVar[dict[str, str]] = {"experts": "local_experts"}

    def __init__(self) -> None:
        self.__dict__["experts"] = 128  # never read: the map leads elsewhere
        self.local_experts = 4

    def __getattribute__(self, name: str) -> Any:
        if name != "attribute_map" and name in super().__getattribute__("attribute_map"):
            name = super().__getattribute__("attribute_map")[name]
        return super().__getattribute__(name)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Mapped()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.experts


class Instances(OrderedDict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


ACTIVATIONS = Instances(gelu=torch.nn.GELU, relu=torch.nn.ReLU)


class Activated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS["gelu"](x)


def test_a_mapped_attribute_is_guarded_as_it_is_read() -> None:
    module = Scaled()
    compiled = thunder.jit(module)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 4)
    assert torch.equal(compiled(x), x * 4)
    assert thunder.cache_misses(compiled) == 1
    module.config.local_experts = 5
    assert torch.equal(compiled(x), x * 5)


def test_a_dictionary_that_makes_its_items() -> None:
    compiled = thunder.jit(Activated())
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), torch.nn.functional.gelu(x))
    assert thunder.cache_misses(compiled) == 1


class Drawing(torch.nn.Module):
    """Computes tensors in ``__getattr__``."""

    def __getattribute__(self, name: str) -> Any:
        if name == "noise":
            return torch.rand(2) * self.factor
        return super().__getattribute__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.noise + (2 if hasattr(self, "noise") else 3)


def test_attributes_that_are_computed_from_tensors() -> None:
    """Only the program reads them: it draws as many random numbers as in eager."""
    module = Drawing()
    module.factor = 2.0
    compiled = thunder.jit(module)
    x = torch.ones(2)
    for factor in (2.0, 2.0, 3.0):
        module.factor = factor
        torch.manual_seed(0)
        expected = [module(x), torch.rand(2)]
        torch.manual_seed(0)
        assert torch.equal(torch.stack([compiled(x), torch.rand(2)]), torch.stack(expected))
    assert thunder.cache_misses(compiled) == 2


class Counting:
    """Counts its lookups."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> float:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__["asked"] += 1
        return 2.0


class Logging:
    """Records the names that are looked up, and finds them in a table."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.table = {"scale": 2.0, "shift": 1.0}

    def __getattr__(self, name: str) -> Any:
        self.log.append(name)
        return self.table[name]


class Rising:
    """Gives the next number."""

    def __init__(self) -> None:
        self.number = 0

    def __getattr__(self, name: str) -> float:
        self.number += 1
        return float(self.number)


class Caching:
    """Keeps what it computes, like the lazy attributes of many libraries."""

    def __getattr__(self, name: str) -> float:
        if name not in ("scale", "shift"):
            raise AttributeError(name)
        value = 3.0 + len(name)
        setattr(self, name, value)
        return value


class Forwarding:
    """Stands for another object."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


class ByList:
    """Finds the object that it wraps in a list."""

    def __init__(self, inner: Any) -> None:
        self.parts = [inner]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["parts"][0], name)


class InSlot:
    """Has no ``__dict__``: it shows that of the wrapped object."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Peer:
    """Finds what another object has, which finds what this one has."""

    def __init__(self, **table: float) -> None:
        self.table, self.peer = table, self

    def __getattr__(self, name: str) -> float:
        return self.__dict__["peer"].table[name]


def test_objects_that_look_into_each_other() -> None:
    one, other = Peer(scale=2.0), Peer(shift=3.0)
    one.peer, other.peer = other, one
    compiled = thunder.jit(lambda x: x * other.scale + one.shift)
    assert compiled(torch.ones(())) == 5
    one.table["scale"] = 4.0
    assert compiled(torch.ones(())) == 7


class ModuleOver(torch.nn.Module):
    """Has what its submodule has, like a model with adapters."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


class CountingModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        if name != "scale":
            return super().__getattr__(name)
        self.__dict__["asked"] += 1
        return 2.0


@pytest.mark.parametrize(("forwards", "counts"), [(InSlot, Counting), (ModuleOver, CountingModule)])
def test_an_object_that_forwards_from_a_slot_or_to_a_submodule(forwards: type[Any], counts: type[Any]) -> None:
    expected, counting = counts(), counts()
    compiled = thunder.jit(lambda thing, x: x * thing.scale)
    for calls in range(1, 4):
        assert compiled(forwards(counting), torch.ones(())) == forwards(expected).scale
        assert counting.asked == expected.asked == calls


class LoggingAccess:
    """Remembers what is read of it."""

    def __init__(self) -> None:
        self.scale, self.shift, self.log = 2.0, 1.0, []

    def __getattribute__(self, name: str) -> Any:
        if name in ("scale", "shift"):
            object.__getattribute__(self, "log").append(name)
        return object.__getattribute__(self, name)


class WithProperty:
    def __init__(self) -> None:
        self.log: list[str] = []

    @property
    def scale(self) -> float:
        self.log.append("scale")
        return 2.0

    shift = 1.0


@pytest.mark.parametrize(
    "make",
    [
        Counting,
        Logging,
        Rising,
        Caching,
        lambda: Forwarding(Counting()),
        lambda: Forwarding(Forwarding(Logging())),
        lambda: Forwarding(WithProperty()),
        lambda: Forwarding(SimpleNamespace(scale=2.0, shift=1.0)),
        lambda: ByList(Counting()),
        lambda: Forwarding(Forwarding(Forwarding(Forwarding(Forwarding(Counting()))))),
    ],
    ids=["counts", "logs", "rises", "caches", "forwards", "twice", "to a property", "looks up", "by a list", "deep"],
)
def test_a_lookup_that_does_more_runs_as_often_as_in_eager(make: Callable[[], Any]) -> None:
    """No guard reads its attributes; their values and changes are those of eager in each call."""

    def program(thing: Any, x: torch.Tensor) -> torch.Tensor:
        scaled = x * thing.scale + thing.shift
        return scaled + getattr(thing, "other", 1.0) if isinstance(thing, Counting) else scaled

    def state(thing: Any) -> Any:
        held = dict(object.__getattribute__(thing, "__dict__"))
        held |= {"inner": state(held["inner"])} if "inner" in held else {}
        return held | {"parts": [state(part) for part in held["parts"]]} if "parts" in held else held

    expected, thing = make(), make()
    compiled = thunder.jit(program)
    for number in range(3):
        x = torch.full((2,), float(number))
        assert torch.equal(compiled(thing, x), program(expected, x))
        assert state(thing) == state(expected)


def test_what_a_lookup_reads_is_guarded() -> None:
    thing = Logging()
    compiled = thunder.jit(lambda x: x * thing.scale)
    assert compiled(torch.ones(())) == 2
    thing.table["scale"] = 5.0
    assert compiled(torch.ones(())) == 5
    forwarding = Forwarding(thing)
    compiled = thunder.jit(lambda x: x * forwarding.scale)
    assert compiled(torch.ones(())) == 5
    thing.table["scale"] = 6.0
    assert compiled(torch.ones(())) == 6
    thing.scale = 7.0
    assert compiled(torch.ones(())) == 7


def test_reads_of_everything_that_do_more_are_refused() -> None:
    thing = LoggingAccess()
    with pytest.raises(UnsupportedError, match=r"LoggingAccess\.scale is read through .*__getattribute__"):
        thunder.jit(lambda x: x * thing.scale)(torch.ones(2))


class Checking:
    """Calls functions that are not known; nothing shows that they change something."""

    def __init__(self) -> None:
        self.scale, self.shift = 2.0, 1.0

    def __getattribute__(self, name: str) -> Any:
        if object.__getattribute__(self, "__dict__").get("_forbidden") == name:
            warn_about(name)
            raise Forbidden(name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        warn_about(name)
        raise AttributeError(name)


class Forbidden(Exception):
    pass


def warn_about(name: str) -> None:
    raise AssertionError(name)


def test_checks_of_each_read() -> None:
    """As configurations of Hugging Face do since transformers 5.20."""
    thing = Checking()
    compiled = thunder.jit(lambda x: x * thing.scale + thing.shift)
    for _ in range(2):
        assert compiled(torch.ones(())) == 3
    thing.unread = 4
    assert compiled(torch.ones(())) == 3
    assert thunder.cache_misses(compiled) == 1
    thing.scale = 3.0
    assert compiled(torch.ones(())) == 4


class Answering:
    def __getattr__(self, name: str) -> Any:
        try:
            return {"one": 1}[name.lower()]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}") from None


@pytest.mark.parametrize(
    ("lookup", "harmless"),
    [
        (Mapped.__getattribute__, True),
        (Drawing.__getattribute__, True),
        (Forwarding.__getattr__, True),
        (Answering.__getattr__, True),
        (Counting.__getattr__, False),
        (Logging.__getattr__, False),
        (Rising.__getattr__, False),
        (Caching.__getattr__, False),
        (LoggingAccess.__getattribute__, False),
        (Checking.__getattribute__, True),
        (Checking.__getattr__, False),
    ],
)
def test_which_lookups_guards_may_run(lookup: FunctionType, harmless: bool) -> None:
    assert is_pure_lookup(lookup.__code__) is harmless


def test_a_lookup_that_tells_a_logger() -> None:
    """The class of configurations of transformers 5.23: a global that holds caches is named in it."""

    class Telling:
        def __init__(self) -> None:
            self.scale = 2.0

        def __getattribute__(self, name: str) -> Any:
            if name == "forbidden":
                LOGGER.once(name)
            return super().__getattribute__(name)

    thing = Telling()
    assert thunder.jit(lambda x: x * thing.scale)(torch.ones(())) == 2


class _Logger:
    @functools.cache  # noqa: B019
    def once(self, text: str) -> None:
        raise AssertionError(text)


LOGGER = _Logger()
