"""What a program warns of and logs without tensors: as often as in eager, at the same places."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from warnings import warn as tell

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning

logger = logging.getLogger("thunder_tests.warnings")


class Note(UserWarning):
    pass


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("of the caller", FutureWarning, stacklevel=2)
        return helper(x)


def helper(x: torch.Tensor) -> torch.Tensor:
    tell("of the helper", stacklevel=2)
    warnings.warn(Note("an object"), stacklevel=1)
    return x * 2


def plain(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        warnings.warn("large", stacklevel=1)
    logger.info("size %d", x.shape[0])
    return helper(x)


def trained(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    logger.warning("in between")
    return y.cos()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        logger.info("forward")
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        logger.info("backward")
        return gradient * 2


def doubled(x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x)


def objects(x: torch.Tensor) -> torch.Tensor:
    logger.info("%s of %s: %r", x.shape, x.dtype, Note)
    logger.info({"a": 1})
    logger.info("100 %")
    logger.log(logging.ERROR, "%(a)s", {"a": 1})
    return x + 1


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: (logger.info("row"), warnings.warn("row", stacklevel=1), row.sin())[-1])(x)


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[Any, ...]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.lineno, record.funcName, record.getMessage()))


@contextmanager
def warnings_and_records(action: str = "always", source: logging.Logger = logger) -> Iterator[list[tuple[Any, ...]]]:
    """A list that has, after the body, its warnings and the log records of ``source``.

    Args:
        action: of the filter for warnings.
    """
    lines: list[tuple[Any, ...]] = []
    handler = Lines()
    source.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            yield lines
    finally:
        source.removeHandler(handler)
    lines += [(str(one.message), one.category, one.filename, one.lineno) for one in caught]
    lines += handler.lines


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    "program",
    [plain, trained, doubled, objects, mapped, helper],
    ids=lambda program: program.__name__,
)
def test_each_call_tells_what_eager_tells(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program)
    for _ in range(3):
        seen = []
        for function in (program, compiled):
            x = torch.rand(3, requires_grad=True)
            with warnings_and_records() as lines:
                function(x).sum().backward()
            seen.append(lines)
        assert seen[1] == seen[0] != []
    assert thunder.cache_misses(compiled) == 1


def test_a_module_warns_of_its_callers() -> None:
    """PyTorch's own frames are between a module and its caller; Thunder's do not count."""
    module = Module()
    compiled = thunder.jit(module)
    for _ in range(2):
        with warnings_and_records() as expected:
            module(torch.ones(2))
        with warnings_and_records() as lines:
            compiled(torch.ones(2))
        assert [line[:2] for line in lines] == [line[:2] for line in expected]
        assert lines[1:] == expected[1:]


def test_filters_of_the_call_decide() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("here", Note, stacklevel=1)
        return x + 1

    compiled = thunder.jit(program)
    with warnings_and_records("default") as lines:
        for _ in range(3):
            compiled(torch.ones(2))
    assert len(lines) == 1
    with warnings_and_records("ignore") as lines:
        compiled(torch.ones(2))
    assert lines == []
    with warnings_and_records("error"), pytest.raises(Note, match="here"):
        compiled(torch.ones(2))


def test_filters_of_the_program_act_once() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden", stacklevel=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("counted", stacklevel=1)
        return x + len(caught)

    compiled = thunder.jit(program)
    for _ in range(2):
        with warnings_and_records() as lines:
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert lines == []


@functools.cache
def warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)


class Telling:
    @functools.cache  # noqa: B019
    def once(self, text: str) -> None:
        logger.warning(text)


@pytest.mark.parametrize("local", [False, True])
def test_what_a_cache_tells_once(local: bool) -> None:
    @functools.cache
    def log_once(text: str) -> None:
        logger.info(text)

    telling = Telling()

    def program(x: torch.Tensor) -> torch.Tensor:
        if local:
            log_once("a")
        else:
            warn_once("b")
            telling.once("c")
        return x + 1

    compiled = thunder.jit(program)
    warn_once.cache_clear()
    with warnings_and_records() as lines:
        for _ in range(3):
            compiled(torch.ones(2))
    assert len(lines) == (1 if local else 2)


def test_a_flag_of_the_users_tells_once() -> None:
    module = torch.nn.Module()
    module.told = False

    def program(x: torch.Tensor) -> torch.Tensor:
        if not module.told:
            warnings.warn("only once", stacklevel=1)
            module.told = True
        return x + 1

    compiled = thunder.jit(program)
    with warnings_and_records() as lines:
        for _ in range(3):
            compiled(torch.ones(2))
    assert len(lines) == 1


def test_a_level_that_the_logger_takes_later() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        logger.debug("detail")
        if logger.isEnabledFor(logging.DEBUG):
            x = x * 2
        return x + 1

    compiled = thunder.jit(program)
    with warnings_and_records() as lines:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert lines == []
    logger.setLevel(logging.DEBUG)
    for _ in range(2):
        with warnings_and_records() as lines:
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
        assert len(lines) == 1
    assert thunder.cache_misses(compiled) == 2


def test_second_derivatives_tell_nothing_again() -> None:
    compiled = thunder.jit(lambda x: trained(x).sum())
    x = torch.ones(2, requires_grad=True)
    with warnings_and_records() as lines:
        (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        gradient.sum().backward()
    assert len(lines) == 1
    reference = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(trained(reference).sum(), reference, create_graph=True)
    gradient.sum().backward()
    assert torch.allclose(x.grad, reference.grad)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_tell_once(use_reentrant: bool) -> None:
    """Eager runs the region again in backward, with its warnings. Thunder's recomputation is silent."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(trained, x, use_reentrant=use_reentrant).sum()

    compiled = thunder.jit(program)
    for _ in range(2):
        x, reference = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        with warnings_and_records() as lines:
            compiled(x).backward()
        assert len(lines) == 1
        program(reference).backward()
        assert torch.allclose(x.grad, reference.grad)


def test_a_program_that_tells_is_kept() -> None:
    compiled = thunder.jit(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UncacheableWarning)
        for _ in range(2):
            compiled(torch.ones(2))
    assert thunder.cache_hits(compiled) == 1


def test_a_warning_that_is_an_error_may_be_handled() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            warnings.warn("handled", stacklevel=1)
        except UserWarning:
            return x + 10
        return x + 1

    with warnings_and_records("error"):
        assert torch.equal(thunder.jit(program)(torch.zeros(2)), torch.full((2,), 10.0))


def test_what_is_no_warning_is_an_error() -> None:
    with pytest.raises(TypeError, match="category must be a Warning subclass"):
        thunder.jit(lambda x: (warnings.warn("text", 5, stacklevel=1), x)[1])(torch.ones(2))


def test_functions_of_logging() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        logging.warning("of the root")
        return x + 1

    compiled = thunder.jit(program)
    with warnings_and_records(source=logging.getLogger()) as lines:
        for _ in range(3):
            compiled(torch.ones(2))
    assert [(level, *rest) for level, _, *rest in lines] == [("WARNING", "program", "of the root")] * 3


def test_a_cache_that_an_object_holds() -> None:
    class Cached:
        def __init__(self) -> None:
            self.get = functools.lru_cache(self._get)

        def _get(self, factor: float) -> float:
            logger.info("computed")
            return factor

    cached = Cached()
    compiled = thunder.jit(lambda x: x * cached.get(2.0))
    with warnings_and_records() as lines:
        for _ in range(3):
            compiled(torch.ones(2))
    assert len(lines) == 1


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_a_program_that_sets_a_level() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        result = x + 1 if logger.isEnabledFor(logging.DEBUG) else x
        logger.setLevel(logging.DEBUG)
        return result

    compiled = thunder.jit(program)
    for expected in (0, 1, 1):
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), float(expected)))


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_output_that_the_program_redirects() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("four")
        return x + len(text.getvalue())

    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 5.0))
