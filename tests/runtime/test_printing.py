"""What a program prints and logs: at each call, with the values of that call."""

from __future__ import annotations

import collections
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import DataDependentError, UnsupportedError

logger = logging.getLogger("thunder_tests.printing")
log_info = logger.info


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(self)
        print(self.linear.weight)
        y = self.linear(x)
        print("layer", y)
        return y


layer = Layer()


def computed(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    print(y)
    print("sum", y.sum(), y.shape, 3, y.dtype, sep="|", end="!\n")
    return y + 1


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(y, x)
    y.add_(1)
    x.mul_(2)
    print(y, x)
    return y


def nested(x: torch.Tensor) -> torch.Tensor:
    print([x, x + 1], {"a": (x, "text", None)}, end="")
    print()
    return x * 2


def unused(x: torch.Tensor) -> torch.Tensor:
    print("start")
    print(torch.arange(3) * 2, torch.rand(2), x.sum() * 3)
    print("shape", x.shape)
    return x


def objects(x: torch.Tensor) -> torch.Tensor:
    counter = collections.Counter(a=1)
    print(x, counter, counter.items())
    counter["a"] += 1
    print(x, counter)
    return x * 2


def rows(x: torch.Tensor) -> torch.Tensor:
    for index, row in enumerate(x):
        print(index, row)
    return x * 2


def precision(x: torch.Tensor) -> torch.Tensor:
    torch.set_printoptions(precision=2)
    print(x / 3)
    torch.set_printoptions(profile="default")
    print(x / 3)
    torch.set_printoptions(3)
    print(x / 3)
    torch.set_printoptions(profile="default")
    return x


def logged(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    logger.info("%s and %d", y, 3)
    logger.log(logging.WARNING, "%(a)s", {"a": x})
    logger.debug("not %s", y)
    logger.error(y.sum())
    logger.error(msg=y.sum() + 1)
    logger.log(level=logging.ERROR, msg=y)
    return y


class Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(record.levelname, record.lineno, record.funcName, record.getMessage())


@pytest.fixture
def handler() -> Any:
    handler = Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    "program",
    [computed, written, nested, unused, objects, rows, precision, layer, logged],
    ids=lambda program: getattr(program, "__name__", "module"),
)
def test_text(program: Callable[..., Any], jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    compiled = jit(program)
    for seed in range(3):
        texts = []
        for function in (program, compiled):
            torch.manual_seed(seed)
            function(torch.rand(2, 3))
            texts.append(capsys.readouterr().out)
        assert texts[1] == texts[0] != ""


@pytest.mark.usefixtures("handler")
def test_level_is_that_of_the_call(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    compiled = jit(logged)
    logger.setLevel(logging.CRITICAL)
    compiled(torch.ones(1))
    assert capsys.readouterr().out == ""
    logger.setLevel(logging.DEBUG)
    compiled(torch.ones(1))
    assert "not tensor([2.])" in capsys.readouterr().out


def test_training(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        print("y", y.detach())
        return (y * y).sum()

    compiled = jit(program)
    for value in (0.0, 1.0):
        x = torch.full((2,), value, requires_grad=True)
        compiled(x).backward()
        assert capsys.readouterr().out == f"y {x.detach().exp()}\n"
        assert torch.allclose(x.grad, 2 * (2 * x).exp())


def test_standard_error(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print("x", x, file=sys.stderr, flush=True)
        return x + 1

    compiled = jit(program)
    for value in (1.0, 2.0):
        compiled(torch.full((1,), value))
        assert capsys.readouterr().err == f"x tensor([{value:.0f}.])\n"


@pytest.mark.parametrize(
    "use",
    [
        str,
        repr,
        lambda y: f"{y}",
        lambda y: f"{y.sum():.3f}",
        lambda y: "%s" % y,  # noqa: UP031
        lambda y: print(f"{y}"),
        lambda y: sys.stdout.write(str(y)),
        lambda y: warnings.warn(f"{y}", stacklevel=1),
        lambda y: {str(y): 1},
        lambda y: str(y) == "tensor",
        lambda y: logger.error(f"{y}"),
    ],
)
@pytest.mark.parametrize("computed", [False, True])
def test_text_that_python_would_use_is_refused(use: Any, computed: bool, jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        use(x * 2 if computed else x)
        return x + 1

    with pytest.raises(DataDependentError, match="give print"):
        jit(program, sharp_edges="error")(torch.ones(2))


def test_printing_to_a_file_is_refused(jit: Callable[..., Any], tmp_path: Any) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(UnsupportedError, match="file has advanced"):
        jit(lambda x: (print(x * 2, file=file), x)[1])(torch.ones(2))


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("grad", [False, True])
def test_printing_to_a_stream_in_memory(grad: bool, jit: Callable[..., Any]) -> None:
    def results(compile: Callable[..., Any]) -> list[Any]:
        stream = io.StringIO()

        def program(x: torch.Tensor) -> Any:
            print("before", file=stream)
            print("sum", x.sum(), x.shape, file=stream, end=";")
            own = io.StringIO()
            print(x * 2, file=own)
            with contextlib.redirect_stdout(own):
                print(x)
            return x * len(own.getvalue()), own.getvalue()

        compiled = compile(program)
        seen = [compiled((torch.ones(2) * scale).requires_grad_(grad)) for scale in (1, 1, 10)]
        return [[(result.tolist(), text) for result, text in seen], stream.getvalue()]

    assert results(jit) == results(lambda program: program)


def test_printing_in_a_transformation_is_refused(jit: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.func formats the values"):
        jit(torch.vmap(lambda x: (print(x), x)[1]))(torch.ones(2))


def test_debuggers_may_look(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Frames of a debugger see what is known of a tensor that has no value yet."""
    namespace: dict[str, Any] = {"__name__": "pdb"}
    exec("def show(value): return repr(value)", namespace)
    seen = []
    jit(lambda x: (seen.append(namespace["show"](x * 2)), x)[1])(torch.ones(2))
    assert seen == ["TracedTensor(t0: float32[2], cpu)"]


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
def test_print_that_only_a_set_holds_is_refused(jit: Callable[..., Any]) -> None:
    functions = {print}

    def program(x: torch.Tensor) -> torch.Tensor:
        for function in functions:
            function("text")
        return x

    with pytest.raises(UnsupportedError, match="print is called through an alias"):
        jit(program)(torch.ones(3))


@pytest.mark.usefixtures("handler")
def test_method_of_a_logger_by_another_name(jit: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        log_info("value %s", x * 2)
        return x

    compiled = jit(program)
    for value in (1.0, 2.0):
        compiled(torch.tensor([value]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == ["program value tensor([2.])", "program value tensor([4.])"]


def test_a_branch_of_cond_prints_though_nobody_uses_its_result(capsys):
    def program(x):
        def printing(y):
            print("positive")
            return y * 2

        torch.cond(x.sum() > 0, printing, lambda y: y + 1, (x,))
        return x + 1

    compiled = thunder.jit(program)
    for sign in (1.0, -1.0, 1.0):
        assert torch.equal(compiled(torch.full((3,), sign)), torch.full((3,), sign + 1))
    assert capsys.readouterr().out == "positive\npositive\n"


def test_print_as_a_hook_prints_gradients(jit, capsys):
    def program(x, w):
        y = x * w
        y.register_hook(print)
        w.register_post_accumulate_grad_hook(print)
        return y.sin().sum()

    printed = []
    for function in (program, jit(program)):
        for number in range(2):
            w = torch.full((2,), number + 1.0, requires_grad=True)
            function(torch.ones(2), w).backward()
            printed.append(capsys.readouterr().out)
    assert printed[2:] == printed[:2]
    assert "requires_grad=True" in printed[0]
