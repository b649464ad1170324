"""A recording leaves what it entered and replaced, whatever a program does and whatever exception passes."""

from __future__ import annotations

import builtins
import itertools
import random
import signal
import types
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from tests.interrupts import PROGRAMS as INTERRUPTED
from tests.interrupts import RECORDED, Called, count_points, in_another_thread, left_by, raised_with
from thunder_core.autodiff.derivatives import by_autograd, by_rule, derive
from thunder_core.autodiff.derivatives.derivative import PLAIN
from thunder_core.errors import DataDependentError, InternalError, UncacheableWarning
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.passes import autocast_rewrites
from thunder_core.pytorch_internals import len_torch_dispatch_stack, len_torch_function_stack
from thunder_core.runtime import program_cache
from thunder_core.tracing import lowering, trace_call

ORIGINALS = dict(vars(builtins))
X = torch.tensor([1.0, -2.0])


def state() -> Any:
    """PyTorch's modes, and the builtins that differ from those of the start."""
    modes = (
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        *(torch.get_default_dtype(), len_torch_function_stack(), len_torch_dispatch_stack()),
        torch.compiler.is_compiling(),
    )
    held = vars(builtins)
    return modes, [name for name in {**ORIGINALS, **held} if held.get(name) is not ORIGINALS.get(name)]


def restore() -> None:
    """Put back the builtins of the process."""
    held = vars(builtins)
    held.update(ORIGINALS)
    for name in held.keys() - ORIGINALS.keys():
        del held[name]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Each test ends with the builtins of the process and as it began; the next program compiles."""
    before = state()
    yield
    restore()
    assert state() == before
    assert torch.equal(thunder.jit(lambda x: torch.relu(x) * max(2, 1))(X), torch.tensor([2.0, 0.0]))


def outcome(program: Callable[..., Any], *args: Any) -> Any:
    """The result of a call, or its exception, and the builtins that it leaves."""
    try:
        result: Any = program(*args).tolist()
    except BaseException as error:
        result = repr(error)
    _, changed = state()
    restore()
    return result, changed


def as_eager(program: Callable[..., Any], *args: Any, calls: int = 2) -> None:
    """Each call has the outcome of eager. The program must not depend on what earlier calls left."""
    compiled = thunder.jit(program)
    for _ in range(calls):
        expected = outcome(program, *args)
        assert outcome(compiled, *args) == expected


# ---- namespaces that hold what recording replaces --------------------------------------------------------------------

NAMES: dict[str, Any] = {"k": 3}


class Holder:
    """Holds the variables of packages."""

    def __init__(self) -> None:
        self.builtins, self.torch, self.own, self.calls = vars(builtins), vars(torch), globals(), 0


HOLDER = Holder()


def evaluates_first(x: torch.Tensor) -> torch.Tensor:
    eval("1", NAMES)
    exec("r = k * 2", NAMES)
    return x * NAMES["r"]


def executes(x: torch.Tensor, names: dict[str, Any]) -> torch.Tensor:
    exec("r = max(k, 2) * 2", names)
    return x * names["r"]


def calls_held_builtin(x: torch.Tensor) -> torch.Tensor:
    return x * HOLDER.builtins["max"](1, 2)


def calls_held_function(x: torch.Tensor) -> torch.Tensor:
    return HOLDER.torch["relu"](x) * sum(1 for name in HOLDER.torch if name == "relu")


def holds_own_variables(x: torch.Tensor) -> torch.Tensor:
    return x * len([name for name in HOLDER.own if name == "NAMES"])


@pytest.mark.parametrize(
    "program", [evaluates_first, calls_held_builtin, calls_held_function, holds_own_variables], ids=lambda p: p.__name__
)
def test_variables_of_packages_are_no_content_of_dictionaries(program: Callable[..., Any]) -> None:
    """`exec` adds ``__builtins__`` to its globals. The functions that recording had replaced were put back into it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_eager(program, X)


def test_globals_of_exec_as_an_argument() -> None:
    for names in ({"k": 3}, {"k": 1}):
        exec("1", names)
        as_eager(executes, X, names)


def test_programs_that_change_what_holds_such_variables() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        HOLDER.calls += 1
        return x * HOLDER.builtins["max"](1, HOLDER.calls)

    compiled = thunder.jit(program)
    HOLDER.calls = 0
    assert [compiled(X)[0].item() for _ in range(3)] == [1, 2, 3]
    assert HOLDER.calls == 3


# ---- programs that replace builtins ----------------------------------------------------------------------------------


def replaces(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        original = getattr(builtins, name)
        setattr(builtins, name, lambda *args, **kwargs: original(*args, **kwargs))
        return x * (len([1, 2]) + max(1, 2) + id(x) * 0)

    return program


def replaces_and_restores(x: torch.Tensor) -> torch.Tensor:
    original = builtins.len
    builtins.len = lambda value: 7
    try:
        return x * len([1])
    finally:
        builtins.len = original


def replaces_and_raises(x: torch.Tensor) -> torch.Tensor:
    builtins.len = lambda value: 7  # type: ignore[assignment]
    raise ValueError("it stays")


def replaces_by_local_import(x: torch.Tensor) -> torch.Tensor:
    import builtins as held

    held.len = lambda value: 7  # type: ignore[assignment]
    return x * 2


def replaces_in_the_dictionary(x: torch.Tensor) -> torch.Tensor:
    vars(builtins)["sorted"] = lambda value: 7
    return x * 2


def adds(x: torch.Tensor) -> torch.Tensor:
    builtins.added = 3  # type: ignore[attr-defined]
    return x * added  # type: ignore[name-defined]  # noqa: F821


def deletes(x: torch.Tensor) -> torch.Tensor:
    del builtins.sorted
    return x * 2


def patches(x: torch.Tensor) -> torch.Tensor:
    with unittest.mock.patch("builtins.sorted", lambda value: value):
        return x * sorted([2, 1])[0]


REPLACING = [
    *map(replaces, ["len", "max", "print", "isinstance", "getattr", "hash", "range", "sum"]),
    *(replaces_and_restores, replaces_and_raises, replaces_by_local_import, replaces_in_the_dictionary, adds, deletes),
]


@pytest.mark.parametrize("program", REPLACING, ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore:.*replaces builtin functions")
def test_programs_that_replace_builtins_run_eagerly(program: Callable[..., Any]) -> None:
    """The builtins are those of eager afterwards: interceptions put the originals of ``max`` and ``print`` back."""
    as_eager(program, X, calls=3)


def test_programs_that_patch_builtins() -> None:
    as_eager(patches, X)


def test_replacing_is_said_once() -> None:
    compiled = thunder.jit(replaces("len"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(6):
            compiled(X)
            restore()
    assert [one.category for one in warned] == [UncacheableWarning]
    assert "(len), which Thunder and PyTorch call as well; replace them outside" in str(warned[0].message)


# ---- builtins that others replace ------------------------------------------------------------------------------------


def calls_builtins(x: torch.Tensor) -> torch.Tensor:
    found = len([1, 2]) + max(1, 2) + sum([1]) + abs(-1) + isinstance(x, torch.Tensor) + getattr(HOLDER, "one", 1)
    print("called")
    return x * (found + sorted([2, 1])[0] + (id(x) == id(x)) + len(list(map(bool, range(3)))))


class Counting:
    """Counts the calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


REPLACED = ("len", "max", "sum", "abs", "isinstance", "getattr", "sorted", "id", "map", "range", "list", "print")
KINDS: dict[str, Callable[[Any], Any]] = {
    "same": lambda original: lambda *args: original(*args),
    "counting": Counting,
    "mock": lambda original: unittest.mock.MagicMock(wraps=original),
    "other": lambda original: lambda *args: original(*args) if original in (isinstance, getattr) else [7],
}


@pytest.mark.filterwarnings("ignore:.*builtin functions are replaced", "ignore:.*takes values from print")
@pytest.mark.filterwarnings("ignore:.*is compiled again at each call")  # a mock has other attributes after each call
@pytest.mark.parametrize("cached", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.battery
def test_builtins_that_are_replaced_around_calls(name: str, kind: str, cached: bool) -> None:
    """As libraries and ``mock.patch("builtins.len")`` do. What replaced them saw Thunder's calls, and broke them."""
    if kind == "mock" and name in ("len", "isinstance", "getattr", "list", "map"):
        pytest.skip("a mock calls it")
    seen = []
    for function in (calls_builtins, thunder.jit(calls_builtins)):
        before = outcome(function, X) if cached else None
        replacement = KINDS[kind](getattr(builtins, name))
        results = []
        for _ in range(3):
            setattr(builtins, name, replacement)
            try:
                results.append(function(X).tolist())
            except TypeError as error:
                results.append(str(error))
            finally:
                restore()
        calls = getattr(replacement, "calls", None) or getattr(replacement, "call_count", None)
        seen.append((before, results, calls, outcome(function, X)))
    assert seen[0] == seen[1]


def test_replaced_builtins_are_said_once() -> None:
    compiled = thunder.jit(calls_builtins)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(4):
            with unittest.mock.patch("builtins.sum", return_value=7):
                compiled(X)
    assert [one.category for one in warned] == [UncacheableWarning]
    assert "builtin functions are replaced (sum), which Thunder and PyTorch call as well" in str(warned[0].message)


def test_functions_that_others_add_to_the_builtins() -> None:
    """As IPython and profilers do; they are variables."""
    compiled = thunder.jit(lambda x: x * scale)  # type: ignore[name-defined]  # noqa: F821
    for scale_ in (2, 3, 2):
        builtins.scale = scale_  # type: ignore[attr-defined]
        assert torch.equal(compiled(X), X * scale_)
    assert thunder.cache_misses(compiled) == 2


# ---- objects whose methods raise -------------------------------------------------------------------------------------


class UncomparableMeta(type):
    """A metaclass of classes that cannot be compared."""

    def __eq__(cls, other: object) -> bool:
        raise ValueError("not comparable")

    __hash__ = type.__hash__


class Uncomparable(metaclass=UncomparableMeta):
    """Neither instances nor the class can be compared."""

    scale = 2
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("not comparable")


class Silent:
    """An object without a text or a truth value."""

    scale = 2

    def __repr__(self) -> str:
        raise ValueError("no text")

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


UNCOMPARABLE, SILENT = Uncomparable(), Silent()


def variable_missed(name: str) -> Any:
    raise KeyError(name)


MODULE = types.ModuleType("module_that_raises")
MODULE.scale = 2  # type: ignore[attr-defined]
MODULE.__getattr__ = variable_missed  # type: ignore[attr-defined,method-assign]


def of_module(x: torch.Tensor) -> torch.Tensor:
    return x * MODULE.scale


def absent_in_module(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * MODULE.absent
    except KeyError:
        return x * 3


PROGRAMS = {
    "class": lambda x: x * Uncomparable.scale,
    "instance": lambda x: x * UNCOMPARABLE.scale,
    "new instance": lambda x: x * Uncomparable().scale,
    "in containers": lambda x: x * [UNCOMPARABLE][0].scale * {"a": (UNCOMPARABLE,)}["a"][0].scale,
    "silent": lambda x: x * SILENT.scale,
    "module": of_module,
    "module, by name": lambda x: x * getattr(MODULE, "scale"),  # noqa: B009
    "module, absent": absent_in_module,
    "module, absent by name": lambda x: x * getattr(MODULE, "absent", 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_objects_whose_methods_raise(name: str) -> None:
    as_eager(PROGRAMS[name], X)


def test_argument_and_result_of_a_class_that_cannot_be_compared() -> None:
    result, given = thunder.jit(lambda x, one: (x * one.scale, one))(X, UNCOMPARABLE)
    assert given is UNCOMPARABLE
    assert torch.equal(result, X * 2)


def test_variable_that_a_module_gets_later() -> None:
    compiled = thunder.jit(absent_in_module)
    assert torch.equal(compiled(X), X * 3)
    MODULE.absent = 5  # type: ignore[attr-defined]
    try:
        assert torch.equal(compiled(X), X * 5)
    finally:
        del MODULE.absent


# ---- exceptions ------------------------------------------------------------------------------------------------------


class Own(BaseException):
    """An exception that no handler of Thunder names."""


def raises(kind: type[BaseException]) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            torch.relu(x)
            raise kind

    return program


@pytest.mark.parametrize("kind", [ValueError, RecursionError, SystemExit, KeyboardInterrupt, GeneratorExit, Own])
def test_exceptions_of_programs(kind: type[BaseException]) -> None:
    as_eager(raises(kind), X)


# ---- signals ---------------------------------------------------------------------------------------------------------

ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Python reports exceptions that are raised while it closes a generator."""


@ignored
@pytest.mark.parametrize("name", INTERRUPTED)
@pytest.mark.slow
def test_later_calls_that_a_signal_interrupts(name: str) -> None:
    """``torch.no_grad()`` around the writes of a program stayed on."""
    called = Called(name, executors=[])
    for _ in range(3):
        called()
    found = list(left_by(called, itertools.count()))
    assert len(found) > 30
    assert not any(found), found
    in_another_thread(called)


@ignored
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.slow
def test_first_calls_that_a_signal_interrupts(name: str) -> None:
    called = Called(name, executors=[])
    called()
    called.again()
    points, chosen = count_points(called), random.Random(0)
    for _ in range(20):
        called.again()
        assert list(left_by(called, iter([chosen.randrange(points)]))) in ([], [""])
        called()
    in_another_thread(called)


@ignored
def test_backward_that_a_signal_interrupts() -> None:
    """It runs under the default dtype of the compilation and without autocast."""
    compiled = thunder.jit(torch.nn.Linear(2, 2))
    compiled(X).sum().backward()
    for point in itertools.count():
        loss = compiled(X).sum()
        with torch.autocast("cpu", torch.bfloat16):
            torch.set_default_dtype(torch.float64)
            found = list(left_by(loss.backward, iter([point])))
            torch.set_default_dtype(torch.float32)
        assert not any(found), found
        if not found:
            break
    assert point > 30


class Late(Exception):
    """The exception of a handler, which code that handles any exception may catch."""


def _late(number: int, frame: Any) -> None:
    raise Late


@pytest.mark.parametrize("name", ["value", "own function"])
def test_exceptions_of_signal_handlers_are_those_of_the_call(name: str) -> None:
    """Neither a defect, nor a failure of a transform, nor a reason to record the program again."""
    before = signal.signal(signal.SIGUSR1, _late)
    try:
        called = Called(name, executors=[])
        called()
        called.again()
        points, generator = count_points(called), random.Random(name)
        raised = []
        for point in [generator.randrange(points) for _ in range(12)]:
            called.again()
            raised.append(raised_with(called, point, lambda: signal.raise_signal(signal.SIGUSR1)))
        assert not [(place, error) for place, error in raised if place and type(error) is not Late]
        assert any(place for place, _ in raised)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def late() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, _late)
    yield
    signal.signal(signal.SIGUSR1, before)


def _interrupts(*_: Any, **__: Any) -> Any:
    signal.raise_signal(signal.SIGUSR1)


def _in_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


_CALL: Any = types.SimpleNamespace(symbol=types.SimpleNamespace(name="sin"), args=(), kwargs={})
PASSES: dict[str, tuple[types.ModuleType, str, Callable[[], Any]]] = {
    "autograd": (by_autograd, "split_log", lambda: thunder.jit(torch.special.i1e)(torch.ones(7, requires_grad=True))),
    "rule": (by_rule, "split_log", lambda: thunder.jit(torch.mean)(torch.ones(7, requires_grad=True))),
    "autocast": (autocast_rewrites, "_LoggedCall", lambda: thunder.jit(_in_autocast)(torch.ones(7, 7))),
    "lowering": (lowering, "trace_call", lambda: lowering._trace(_CALL, torch.sin, PLAIN)),
    "rewrite": (trace_call, "trace_call", lambda: trace_call._record(_CALL, torch.sin, PLAIN)),
}


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("name", PASSES)
def test_passes_lose_no_exceptions_of_signal_handlers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They try another way where one fails."""
    module, function, call = PASSES[name]
    monkeypatch.setattr(derive, "_cache", BoundedCache(8))
    monkeypatch.setattr(module, function, _interrupts)
    with pytest.raises(Late):
        call()


def _late_with_cause(number: int, frame: Any) -> None:
    raise Late from KeyError("cause")


def test_exceptions_of_signal_handlers_keep_their_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGUSR1, _late_with_cause)

    def fails(*_: Any, **__: Any) -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Late as error:
            raise InternalError("a failure") from error

    fails.__code__ = fails.__code__.replace(co_filename=program_cache.__file__)
    monkeypatch.setattr(program_cache, "compile_program", fails)
    try:
        with pytest.raises(Late) as caught:
            thunder.jit(torch.sin)(X)
        assert type(caught.value.__cause__) is KeyError
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("late")
def test_errors_of_thunder_while_a_program_handles_an_exception_of_a_signal_handler() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Late:
            return x[x > 0]
        return x

    with pytest.raises(DataDependentError):
        thunder.jit(program, sharp_edges="error")(X)
