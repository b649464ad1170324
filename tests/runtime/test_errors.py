"""Errors: the user's own arrive unchanged; Thunder's name the line and the ways out; no traced tensor stays behind."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.errors import DataDependentError, LeakedTensorError, OptionError, ThunderError


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
        jit(program)(t())
    error = caught.value
    assert error.location is not None
    assert error.location.filename == __file__
    assert any("torch.where" in advice for advice in error.advice)


def test_data_dependent_error_names_the_line_of_the_branch(jit: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError) as caught:
        jit(branches)(t())
    assert f":{branches.__code__.co_firstlineno + 1}" in str(caught.value)


ADVICE = {
    "validate_args=False": lambda x: torch.distributions.Normal(x, x.exp()).log_prob(x),
    "momentum": nn.BatchNorm1d(4, momentum=None),
}


@pytest.mark.parametrize("advice", ADVICE)
def test_data_dependence_inside_pytorch_has_its_own_way_out(
    advice: str, jit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # Dynamo switches it off for good
    with pytest.raises(DataDependentError) as caught:
        jit(ADVICE[advice])(t())
    assert advice in caught.value.advice[0]


def test_printing_a_tensor_is_possible(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Printing tells what is known while a program is recorded, and breaks nothing."""

    def program(x: torch.Tensor) -> torch.Tensor:
        print(x + 1, repr(x * 2), str(x.sum()))
        return x + 1

    x = t()
    assert torch.equal(jit(program)(x), x + 1)


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
    """A tensor subclass with nothing of its own."""


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
    [(3, "type int"), ("text", "type str"), (None, "type NoneType"), (torch.ones(2), "type Tensor"),
     (nn.Linear, r"thunder.jit\(Linear\(...\)\)")],
    ids=["number", "text", "nothing", "tensor", "class"],
)  # fmt: skip
def test_what_cannot_be_compiled(value: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        thunder.jit(value)(torch.ones(2))
    with pytest.raises(OptionError, match=told):
        thunder.jit(cache="no caching")(value)


def test_questions_about_what_is_not_compiled() -> None:
    with pytest.raises(ThunderError, match=r"give what thunder\.jit returned"):
        thunder.last_traces(lambda x: x)
    with pytest.raises(ThunderError, match=r"type Linear was not made by thunder\.jit"):
        thunder.cache_hits(nn.Linear(2, 2))


def test_errors_leave_no_entry(jit: Callable[..., Any]) -> None:
    compiled = jit(branches)
    for _ in range(2):
        with pytest.raises(DataDependentError):
            compiled(t())
    compiled = jit(raises_user_error)
    with pytest.raises(UserError):
        compiled(t())
    assert torch.overrides._get_current_function_mode_stack() == []
