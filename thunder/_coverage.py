"""The promise that calls do not compile: the warm-up, and the coverage of a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from thunder._inspection import compiled_program
from thunder_core.errors import OptionError

if TYPE_CHECKING:
    from thunder.compiled.coverage import Coverage


def covers(jitted: Any, /, *args: Any, **kwargs: Any) -> Coverage:
    """Whether the call ``jitted(*args, **kwargs)`` has a compiled program, and if not, which guard decides.

    The call is not run: it evaluates the guards of the compiled programs, under the modes of PyTorch and with the
    state of the module that a call would see now. Nothing is changed.

    Args:
        jitted: the result of `thunder.jit`, or a bound method of one.
        args, kwargs: those of the call. A tensor on the meta device represents one of its shape, strides and dtype on
            the device for which a program was compiled; a fake tensor represents one on its device.

    Returns:
        A `Coverage`: true if there is a program. It has the reason, and the values of tensors that only a run knows.

    Raises:
        OptionError: ``jitted`` was not returned by `thunder.jit`, or a fake tensor has symbolic sizes.
    """
    from thunder.compiled.coverage import coverage
    from thunder.compiled.function import Compiled

    if isinstance(getattr(jitted, "__func__", None), Compiled):
        args = (jitted.__self__, *args)
    return coverage(compiled_program(jitted), args, kwargs)


@contextmanager
def warm_up(*jitted: Any) -> Iterator[None]:
    """A context in which calls compile, although ``allow_recompiles`` is false or ``"eager"``.

    When it ends, the promise begins: no call of these functions and modules compiles, until such a context is entered
    again. Without such a context, each program is compiled at its first call, and then never.

    Args:
        jitted: results of `thunder.jit`.

    Raises:
        OptionError: nothing is given, or something else.
    """
    if not jitted:
        raise OptionError("thunder.warm_up takes the functions and modules to warm up, and none is given")
    programs = [compiled_program(each) for each in jitted]
    with ExitStack() as stack:
        for program in programs:
            stack.enter_context(program.warm_up)
        yield
