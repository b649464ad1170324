"""Texts of tensors that a program uses: returned, stored, compared, raised."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder


def stored(x: torch.Tensor) -> Any:
    holder: dict[str, str] = {}
    holder["text"] = f"{x.mean():.3f}"
    return x * 2, holder


def compared(x: torch.Tensor) -> Any:
    return x + 1 if str(x.sum()) != "tensor(0.)" else x


def in_place(x: torch.Tensor) -> Any:
    y = x * 2
    before = repr(y)
    y += 1
    return before, repr(y), y


def view(x: torch.Tensor) -> Any:
    return str((x * 2).t()), str(x.detach()), str(x.exp().sum().double())


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "str": lambda x: str(x * 2),
    "repr of an argument": lambda x: repr(x),
    "f-string": lambda x: f"{x * 2} and {x!r:.9}",
    "f-string of one number": lambda x: f"{x.sum():.2f} {x.argmax():d} {(x > 0).any()}",
    "percent": lambda x: "%s %.2f" % (x.exp(), x.detach().sum()),  # noqa: UP031
    "format": lambda x: "{:>10.3f}|{!r}".format(x.sum(), x),  # noqa: UP032
    "list": lambda x: str([x.sum(), {"a": x.max()}]),
    "many elements": lambda x: str(torch.cat([x.flatten()] * 1000)),
    "without gradients": lambda x: str((x * 2).detach()),
    "stored": stored,
    "compared": compared,
    "in place": in_place,
    "view": view,
}


def same(one: Any, other: Any) -> None:
    if isinstance(other, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    elif isinstance(other, tuple):
        for first, second in zip(one, other, strict=True):
            same(first, second)
    else:
        assert one == other


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_text_is_that_of_eager(name: str, requires_grad: bool) -> None:
    program = PROGRAMS[name]
    compiled = thunder.jit(program)
    for sign in (1, -1, 1):
        x = (torch.arange(6.0).reshape(2, 3) * sign + 0.5).requires_grad_(requires_grad)
        same(compiled(x), program(x))
    assert len(thunder.explain(compiled).entries) <= 2


def test_text_of_parameters() -> None:
    layer, scale = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.tensor(1.5))

    def program(x: torch.Tensor) -> Any:
        return (
            str(layer.weight),
            f"{layer.bias} {scale}",
            repr(layer.weight.detach()),
            str(layer.weight.t()),
            str(x > 0),
        )

    compiled = thunder.jit(program)
    x = torch.randn(2)
    assert compiled(x) == program(x)
    with torch.no_grad():
        layer.weight.mul_(2)
        assert compiled(x) == program(x)
    with torch.inference_mode():
        assert compiled(x) == program(x)
    with pytest.raises(TypeError, match="unsupported format string"):
        thunder.jit(lambda x: f"{scale:.2f}")(x)


def test_text_in_an_exception() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if x.sum() < 0:
            raise ValueError(f"negative: {y}")
        return y

    compiled = thunder.jit(program)
    x = torch.ones(3, requires_grad=True)
    same(compiled(x), program(x))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"negative: tensor\(\[-2., -2., -2.\], grad_fn=<MulBackward0>\)"):
            compiled(-torch.ones(3, requires_grad=True))


def test_format_with_a_specification_raises_as_in_eager() -> None:
    def program(x: torch.Tensor) -> str:
        return f"{x * 2:.2f}"

    with pytest.raises(TypeError, match="unsupported format string"):
        program(torch.ones(2))
    with pytest.raises(TypeError, match="unsupported format string"):
        thunder.jit(program)(torch.ones(2))
    with pytest.raises(TypeError, match="unsupported format string"):
        thunder.jit(program)(torch.ones(2, requires_grad=True))


logger = logging.getLogger("thunder_tests.texts")


class ToOutput(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(self.format(record) + "\n")


@pytest.fixture
def logs_to_output() -> Iterator[None]:
    handler = ToOutput()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)


def step(x: torch.Tensor, rate: float) -> Any:
    loss = (x * rate).sum()
    print(f"{x.shape[0]:>4} of {{10}}: loss {loss.item():.3f}, {loss:10.2e}, {loss}, rate {rate:.2g}", "{}", flush=True)
    loss.add_(1)
    return loss, rate


def through_a_variable(x: torch.Tensor, rate: float) -> Any:
    total = x.sum()
    text = f"{total:.3f} {rate=}"
    total.add_(1)
    for index in range(2):
        line = f"{index}: {total * index:.1f}"
        print(line, text)
    return total


def other_forms(x: torch.Tensor, rate: float) -> Any:
    print("{:.3f}|{}".format(x.sum().item(), rate), "rate " + str(rate) + "%")  # noqa: UP032
    print(x.shape, [x.shape[0], 2], {"rate": rate}, f"{x.shape} {[x.shape[0], rate]!r} {torch.equal(x, x)}")
    return x


def logged(x: torch.Tensor, rate: float) -> Any:
    logger.info(f"loss {x.sum().item():.3f} 100% {{}}")
    logger.debug(f"loss {x.sum().item():.3f}")
    logger.warning(f"rate {rate:.2f} of %d", x.shape[0])
    return x


def of_two_uses(x: torch.Tensor, rate: float) -> Any:
    text = f"{rate:.3f}"
    print(text)
    return x, text


def padded(x: torch.Tensor, rate: float) -> Any:
    print(f"{rate!s:>20}|{x.shape!s:>30}", "{:>20}".format(f"{rate:.2f}"), f"{rate:.2f}".upper())
    return x


def own_print(x: torch.Tensor, rate: float) -> Any:
    def print(text: str) -> int:
        return len(text)

    return x, print(f"{rate:.12f}")


def other_options(x: torch.Tensor, rate: float) -> Any:
    print("a", f"{rate:.2f}", sep=f"{rate:.1f}")
    return x


def refused_by_python(x: torch.Tensor, rate: float) -> Any:
    try:
        print(f"{rate:d}")
    except ValueError as error:
        print(error)
    return x


def with_braces(x: torch.Tensor, rate: float) -> Any:
    print(f"{rate:.2f}", {1, 2}, {"{0}"}, "{1}")
    return x


def by_value(x: torch.Tensor, rate: float) -> Any:
    brace = "{"
    print(f"{rate!a} {x.shape!a} {rate:{brace}>8}")
    return x


PRINTED: dict[Callable[..., Any], int | None] = {
    **dict.fromkeys((step, through_a_variable, other_forms, logged, refused_by_python, with_braces), 2),
    **dict.fromkeys((of_two_uses, padded, own_print, other_options, by_value), None),
}
"""Programs, with the number of compilations; None where the text is a value."""


@pytest.mark.filterwarnings("ignore::thunder_core.errors.RecompileWarning")
@pytest.mark.usefixtures("logs_to_output")
@pytest.mark.parametrize("program", PRINTED, ids=lambda program: program.__name__)
def test_numbers_in_printed_texts(program: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    compiled = thunder.jit(program)
    for index in range(2, 10):
        results, outputs = [], []
        for function in (compiled, program):
            results.append(function(torch.arange(float(index)) / 7, index / 8))
            outputs.append(capsys.readouterr().out)
        same(*results)
        assert outputs[0] == outputs[1]
    assert PRINTED[program] in (None, thunder.cache_misses(compiled))
