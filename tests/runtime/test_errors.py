"""Errors: the user's own arrive unchanged; Thunder's name the line and the ways out; no traced tensor stays behind."""

from __future__ import annotations

import ast
import builtins
import contextlib
import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import thunder
import thunder_core
from thunder_core.errors import (
    DataDependentError,
    LeakedTensorError,
    OptionError,
    ThunderError,
    UncacheableError,
    UncacheableWarning,
    UnsupportedError,
)


class UserError(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def raises_user_error(x: torch.Tensor) -> torch.Tensor:
    return _helper(x + 1)


def _helper(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 2:
        raise UserError("two dimensions", code=7)
    return x


def t() -> torch.Tensor:
    return torch.randn(3, 4)


def test_user_exception_arrives_unchanged(jit: Callable[..., Any]) -> None:
    compiled = jit(raises_user_error)
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            compiled(t())
        assert type(caught.value) is UserError
        assert caught.value.args == ("two dimensions",)
        assert caught.value.code == 7
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-2:] == ["raises_user_error", "_helper"]
        assert caught.value.__cause__ is None
    assert compiled(torch.randn(3)).shape == (3,)


@pytest.mark.parametrize(
    "program",
    [lambda x: x @ x, lambda x: x.view(5, 5), lambda x: x[9], lambda x: torch.cat([x, x[0]]), lambda x: x.nope,
     lambda x: torch.stack([]), lambda x: x.expand(7, 7), lambda x: {}["missing"], lambda x: x + "text",
     lambda x: torch.nn.functional.linear(x, x[:, :2]), lambda x: 1 // 0, lambda x: x.sum(5), lambda x: x.to("nowhere"),
     lambda x: nn.Linear(3, 3)(x), lambda x: torch.zeros(-1), lambda x: x.reshape(7, -1), lambda x: next(iter([]))],
)  # fmt: skip
def test_exception_is_what_eager_raises(program: Callable[..., Any], jit: Callable[..., Any]) -> None:
    with pytest.raises(Exception) as expected:
        program(t())
    with pytest.raises(Exception) as actual:
        jit(program)(t())
    assert type(actual.value) is type(expected.value)
    assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_exception_at_run_time_shows_the_users_line(jit: Callable[..., Any]) -> None:
    """An index that is out of range only for the values of the second call."""

    def program(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table[index] * 2  # the user's line

    compiled = jit(program)
    compiled(t(), torch.tensor([0, 1]))
    with pytest.raises(IndexError) as caught:
        compiled(t(), torch.tensor([0, 99]))
    text = "".join(traceback.format_exception(caught.value))
    assert "test_errors.py" in text
    assert "the user's line" in text


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # here
        return x
    return -x


DATA_DEPENDENT = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x.sum()),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "index": lambda x: [1, 2, 3][x.argmax() % 3],
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "unique": lambda x: torch.unique(x),
    "if": branches,
    "while": lambda x: [x for _ in iter(lambda: bool(x.sum() > 9e9), False)],
    "assert": lambda x: (_ for _ in ()).throw(AssertionError) if not (x == x).all() else x,
    "numpy": lambda x: x.numpy(),
    "format": lambda x: f"{x.sum():.2f}",
    "equal": lambda x: x if torch.equal(x, x + 1) else -x,
    "allclose": lambda x: not torch.allclose(x, x),
    "range": lambda x: [x + i for i in range(x.argmax())],
    "repeat_interleave": lambda x: x.repeat_interleave((x[:, 0] > 0).long(), dim=0),
    "contains": lambda x: 3.0 in x,
    "max": lambda x: max(x[0]),
    "split": lambda x: x.split(x.argmax(0).tolist()),
}


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_data_dependence_is_refused_with_the_users_line(name: str, jit: Callable[..., Any]) -> None:
    program = DATA_DEPENDENT[name]
    with pytest.raises(DataDependentError) as caught:
        jit(program, sharp_edges="error")(t())
    error = caught.value
    assert error.location is not None
    assert error.location.filename == __file__
    assert "dynamo" not in str(error)


FITTING: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "branch": (branches, lambda x: torch.where(x.sum() > 0, x, -x), "torch.where"),
    "item": (lambda x: x * x.sum().item(), lambda x: x * x.sum(), "the tensor itself"),
    "math": (lambda x: x * math.sqrt(x.abs().sum()), lambda x: x * torch.sqrt(x.abs().sum()), "torch.sqrt"),
    "contains": (lambda x: x + (1.0 in x), lambda x: torch.where((x == 1.0).any(), x + 1, x), "(x == value).any()"),
    "mask": (lambda x: x[x > 0], lambda x: torch.where(x > 0, x, 0), "instead of x[mask]"),
    "sum of a mask": (lambda x: x[x > 0].sum(), lambda x: (x * (x > 0)).sum(), "(x * mask).sum()"),
    "masked_select": (lambda x: x.masked_select(x > 0), lambda x: x.clone().masked_fill_(x > 0, 1), "torch.where(mask"),
    "nonzero": (lambda x: x.nonzero(), lambda x: torch.nonzero_static(x, size=3), "nonzero_static"),
    "where": (lambda x: torch.where(x > 0), lambda x: torch.topk(x.flatten(), 2), "torch.topk"),
    "slice": (lambda x: x[: x.argmax()], lambda x: x * (torch.arange(3)[:, None] < x.argmax()), "torch.arange(size) <"),
    "range": (lambda x: [x for _ in range(x.argmax())], lambda x: x, "numbers of rounds"),
    "arange": (lambda x: torch.arange(x.sum().long()), lambda x: x, "sizes, starts and ends"),
    "tolist": (lambda x: x * x[0].tolist()[0], lambda x: x * next(iter(x[0])), "iterate over its first dimension"),
    "numpy": (lambda x: np.sin(x.numpy()), torch.sin, "function of torch instead of NumPy's"),
    "asarray": (lambda x: np.asarray(x), lambda x: x, "torch.library.custom_op"),
    "format": (lambda x: f"{x.sum():.2f}", lambda x: x.sum(), "print or format it outside"),
    "repeat_interleave": (
        lambda x: x.repeat_interleave((x[:, 0] > 0).long(), dim=0),
        lambda x: x.repeat_interleave((x[:, 0] == x[:, 0]).long(), dim=0, output_size=len(x)),
        "output_size",
    ),
    "bincount": (
        lambda x: torch.bincount(x.flatten().long().abs()),
        lambda x: torch.zeros(9).scatter_add(0, x.flatten().long().abs(), torch.ones(x.numel())),
        "scatter_add",
    ),
    "one_hot": (
        lambda x: torch.nn.functional.one_hot(x.long().abs()),
        lambda x: torch.nn.functional.one_hot(x.long().abs(), 9),
        "num_classes",
    ),
    "unique": (lambda x: x.unique(), lambda x: x.flatten().sort().values, "torch.sort"),
}


@pytest.mark.parametrize("name", FITTING)
def test_the_advice_fits_the_call_and_works(name: str, jit: Callable[..., Any]) -> None:
    refused, advised, words = FITTING[name]
    with pytest.raises(DataDependentError) as caught:
        jit(refused, sharp_edges="error")(t())
    assert words in caught.value.advice[0]
    x = t()
    torch.testing.assert_close(jit(advised)(x), advised(x))


def test_a_mask_is_no_branch(jit: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError, match=r"the shape of the result of x\[...\] depends on") as caught:
        jit(lambda x: x[x > 0], sharp_edges="error")(t())
    assert not any("torch.cond" in advice for advice in caught.value.advice)


@pytest.mark.filterwarnings("ignore")  # of torch.jit
def test_another_compiler_inside_is_refused(jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.jit.trace(nn.ReLU(), (torch.rand(3, 4),))(x)

    with pytest.raises(UnsupportedError, match=r"test_errors.py(.|\n)*torch\.jit\.trace\("):
        jit(program)(t())


def test_data_dependent_error_names_the_line_of_the_branch(jit: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError) as caught:
        jit(branches, sharp_edges="error")(t())
    assert f":{branches.__code__.co_firstlineno + 1}" in str(caught.value)


def many_elements(x: torch.Tensor) -> Any:
    return x.expand(500, *x.shape).reshape(-1).tolist()


class ManyElements(nn.Module):
    """Cannot be one op either: values decide the shape of its result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, *_ = many_elements(x)
        return x.reshape(-1)[: int(first > 0) + int(second > 0)]


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        (branches, {"sharp_edges": "error"}, 'sharp_edges="error" refuses programs that depend on values'),
        (many_elements, {}, "it reads more than 4096 elements"),
        (nn.Sequential(nn.Tanh(), ManyElements()), {}, "it reads more than 4096 elements"),
    ],
)
def test_data_dependent_error_has_a_reason(
    program: Callable[..., Any], options: Any, reason: str, jit: Callable[..., Any]
) -> None:
    with pytest.raises(DataDependentError) as caught:
        jit(program, **options)(t())
    assert caught.value.problem.endswith(f"is not known while the program is recorded; {reason}")
    assert caught.value.advice


def _refusals() -> Iterator[tuple[str, ast.Call]]:
    kinds = {kind.__name__ for kind in (DataDependentError, LeakedTensorError, UncacheableError, UnsupportedError)}
    root = Path(thunder_core.__file__).parent
    for path in [*root.rglob("*.py"), *(root.parent / "plugins").glob("*/src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                yield f"{path}:{node.lineno}", node


@pytest.mark.slow
def test_each_refusal_says_what_to_do() -> None:
    without = [place for place, call in _refusals() if "advice" not in {keyword.arg for keyword in call.keywords}]
    assert not without


ADVICE = {
    "validate_args=False": lambda x: torch.distributions.Normal(x, x.exp()).log_prob(x),
}


@pytest.mark.parametrize("advice", ADVICE)
def test_data_dependence_inside_pytorch_has_its_own_way_out(
    advice: str, jit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # Dynamo switches it off for good
    with pytest.raises(DataDependentError) as caught:
        jit(ADVICE[advice], sharp_edges="error")(t())
    assert advice in caught.value.advice[0]


LEAKED: list[Any] = []


def leaks_to_global(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    LEAKED.append(y)
    return y + 1


class LeaksToDict(nn.Module):
    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__()
        object.__setattr__(self, "table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        GLOBAL_TABLE["leak"] = x * 2
        return x


GLOBAL_TABLE: dict[str, Any] = {"kept": 1}


def test_leak_is_an_error_and_the_list_is_clean_after(jit: Callable[..., Any]) -> None:
    """Unless the write is done rightly, as eager does it."""
    LEAKED[:] = ["kept"]
    x = t()
    try:
        jit(leaks_to_global)(x)
    except LeakedTensorError as error:
        assert "test_errors.py" in str(error)  # noqa: PT017 - doing it rightly is as good
        assert LEAKED == ["kept"]
    else:
        assert torch.equal(LEAKED[1], x * 2)
        assert type(LEAKED[1]) is torch.Tensor
        assert len(LEAKED) == 2
    finally:
        LEAKED.clear()


def test_leak_into_global_dict(jit: Callable[..., Any]) -> None:
    x = t()
    try:
        jit(LeaksToDict({}))(x)
    except LeakedTensorError:
        assert GLOBAL_TABLE == {"kept": 1}
    else:
        assert torch.equal(GLOBAL_TABLE["leak"], x * 2)
    finally:
        GLOBAL_TABLE.pop("leak", None)


def test_leak_through_exception(jit: Callable[..., Any]) -> None:
    """A traced tensor in an exception's attribute does not reach the user as a working tensor."""

    def program(x: torch.Tensor) -> torch.Tensor:
        error = UserError("with a tensor", code=1)
        error.tensor = x + 1  # type: ignore[attr-defined]
        raise error

    with pytest.raises((UserError, ThunderError)):
        jit(program)(t())


class Tagged(torch.Tensor):
    """A tensor subclass that overrides nothing."""


def test_tensor_subclass_is_right_or_refused(jit: Callable[..., Any]) -> None:
    x = t().as_subclass(Tagged)
    try:
        result = jit(lambda y: y * 2)(x)
    except ThunderError:
        return
    assert type(result) is Tagged
    assert torch.equal(result, x * 2)


@pytest.mark.parametrize(
    "options",
    [{"cache": "symbolic values"}, {"cache": "sometimes"}, {"sharp_edges": "maybe"}, {"executors": ["nope"]},
     {"unknown": 1}, {"recompile_limit": 0}, {"recompile_limit": "many"}],
    ids=str,
)  # fmt: skip
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        thunder.jit(lambda x: x, **options)


@pytest.mark.parametrize(
    ("value", "told"),
    [(3, "type int"), ("text", "type str"), (None, "type NoneType"),
     (torch.ones(2), r"type Tensor\nWhat to do:\n  - compile before the call: thunder.jit\(f\)\(x\)"),
     (nn.Linear, r"thunder.jit\(Linear\(...\)\)")],
    ids=["number", "text", "nothing", "tensor", "class"],
)  # fmt: skip
def test_what_cannot_be_compiled(value: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        thunder.jit(value)(torch.ones(2))
    with pytest.raises(OptionError, match=told):
        thunder.jit(cache="no caching")(value)


def test_questions_about_what_is_not_compiled() -> None:
    with pytest.raises(ThunderError, match=r"pass the result of thunder\.jit"):
        thunder.last_traces(lambda x: x)
    with pytest.raises(ThunderError, match=r"type Linear was not returned by thunder\.jit"):
        thunder.cache_hits(nn.Linear(2, 2))


def test_errors_leave_no_entry(jit: Callable[..., Any]) -> None:
    compiled = jit(branches, sharp_edges="error")
    for _ in range(2):
        with pytest.raises(DataDependentError):
            compiled(t())
    compiled = jit(raises_user_error)
    with pytest.raises(UserError):
        compiled(t())
    assert torch.overrides._get_current_function_mode_stack() == []


def _caught(x: torch.Tensor) -> torch.Tensor:
    try:
        factor = x.sum().item()
    except Exception:
        factor = 5.0
    return x * factor


def _suppressed(x: torch.Tensor) -> torch.Tensor:
    factor = 5.0
    with contextlib.suppress(RuntimeError):
        factor = len(x[x > 0])
    return x * factor


def _returned_from_finally() -> Callable[[torch.Tensor], torch.Tensor]:
    source = """
def program(x):
    factor = 5.0
    try:
        factor = (x * 2).numpy().sum()
    finally:
        return x * factor
"""
    defined: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of this `return`, since Python 3.14
        exec(source, defined)
    program: Callable[[torch.Tensor], torch.Tensor] = defined["program"]
    return program


def _translated(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * x.sum().item()
    except RuntimeError as error:
        raise ValueError("no number") from error


def _translated_in_a_region(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(_translated, x, use_reentrant=False)


@pytest.mark.parametrize(
    "program", [_caught, _suppressed, _returned_from_finally(), _translated, _translated_in_a_region]
)
def test_a_refusal_that_the_program_catches_refuses_it(jit: Callable[..., Any], program: Callable[..., Any]) -> None:
    program(t())  # eager has nothing to catch
    compiled = jit(program, sharp_edges="error")
    for _ in range(2):
        with pytest.raises(DataDependentError) as caught:
            compiled(t())
        assert program.__name__.partition("_in_")[0] in str(caught.value)


class Guess(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return x * x.sum().item()
        except RuntimeError:
            return x * 5.0


def test_a_module_that_catches_a_refusal_is_called_as_eager_calls_it(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(Guess(), nn.ReLU())
    x = t()
    torch.testing.assert_close(jit(model)(x), model(x), rtol=0, atol=0)


def test_what_ends_a_recording_to_begin_another_is_not_caught(jit: Callable[..., Any]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            (gradient,) = torch.autograd.grad((x * x).sum(), x)
        except:  # noqa: E722 - what is tested
            gradient = x
        return x * gradient.detach()

    x = t().requires_grad_()
    torch.testing.assert_close(jit(f)(x), f(x), rtol=0, atol=0)


def _asserts(x: torch.Tensor) -> torch.Tensor:
    torch._assert(x.sum() > -100, "too small")
    y = x.sin().add_(1)
    torch._assert(torch.allclose(y, y), "not a number")
    torch._assert(torch.ones(2).sum() > 1, "a constant")
    torch._assert(x.shape[0] == 3, "another shape")
    return y * 2


def _asserts_in_a_region(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(_asserts, x, use_reentrant=False)


def _asserts_under_its_own_name(x: torch.Tensor) -> torch.Tensor:
    _torch_assert((x > -100).all(), "too small")
    return x * 2


def _asserts_more_than_one(x: torch.Tensor) -> torch.Tensor:
    torch._assert(x > -100, "too small")
    return x * 2


_torch_assert = torch._assert


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "program", [_asserts, _asserts_in_a_region, _asserts_under_its_own_name, _asserts_more_than_one]
)
def test_assertions_of_torch_are_checked_at_each_call(
    jit: Callable[..., Any], program: Callable[..., Any], grad: bool
) -> None:
    compiled = jit(program)
    for x in (torch.ones(3), torch.full((3,), -1000.0), torch.full((3,), math.nan), torch.ones(3), torch.ones(2)):
        outcomes = []
        for called in (program, compiled):
            try:
                outcomes.append(called(x.clone().requires_grad_(grad)).detach())
            except (AssertionError, RuntimeError) as error:
                outcomes.append(repr(error))
        assert type(outcomes[1]) is type(outcomes[0])
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0)


def _storage_of_bools(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(torch.BoolStorage.from_buffer(b"\x00\x01\x01", "little").tolist())


def _storage_filled(x: torch.Tensor) -> Any:
    storage = torch.FloatStorage(3)
    storage.fill_(2.0)
    return x, storage[0]


def _memory_written(x: torch.Tensor) -> torch.Tensor:
    made = torch.from_numpy(np.zeros(3, dtype=np.float32))
    made += x
    return made


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)) + 1,
        lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2)),
        lambda x: (x * 2, x._cdata),
        lambda x: (x * 2, x.data_ptr()),
        _storage_of_bools,
        _storage_filled,
        _memory_written,
    ],
)
def test_memory_that_is_not_recorded_is_refused(jit: Callable[..., Any], program: Callable[..., Any]) -> None:
    program(torch.ones(3))
    for _ in range(2):
        with pytest.raises(UnsupportedError) as caught:
            jit(program)(torch.ones(3))
        assert "test_errors.py" in str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.ones(2, 3, device="meta") @ x,
        lambda x: x + torch.ones(3, device="meta"),
        lambda x: torch.cat([x, torch.ones(3, device="meta")]),
    ],
)
def test_tensors_on_two_devices(jit: Callable[..., Any], program: Callable[..., Any]) -> None:
    x = torch.ones(3)
    errors = []
    for called in (program, jit(program)):
        with pytest.raises(RuntimeError) as caught:
            called(x)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("restores", [False, True])
def test_a_program_that_replaces_id(restores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as eager PyTorch; so do other programs while ``id`` stays replaced."""
    monkeypatch.setattr(builtins, "id", id)
    original = id

    def program(x: torch.Tensor) -> torch.Tensor:
        builtins.id = lambda value: 7
        y = x * id(x)
        if restores:
            builtins.id = original
        return y

    x, compiled = t(), thunder.jit(program)
    expected = x * 7
    assert torch.equal(compiled(x), expected)
    builtins.id = original
    with pytest.warns(UncacheableWarning, match=r"replaces builtin functions \(id\)"):
        assert torch.equal(compiled(x), expected)
    assert (builtins.id is original) is restores
    if not restores:
        other = thunder.jit(lambda x: x * id(x))
        assert torch.equal(other(x), expected)
        assert thunder.cache_misses(other) == 0
