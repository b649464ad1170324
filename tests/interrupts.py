"""Interrupt calls of compiled programs wherever Python runs handlers of signals, and tell what they leave behind.

python -m tests.interrupts                           # each point of later calls, 1,000 points of first calls
python -m tests.interrupts --number 3000 --seed 3    # others of first calls
python -m tests.interrupts --only statistics

Python runs the handler of a signal when a function starts and when a function in C returns, so an exception of the
handler (for Ctrl-C, KeyboardInterrupt) is raised there. Here a profiler raises one at the n-th of these points.
"""

from __future__ import annotations

import argparse
import builtins
import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import torch

import thunder
from thunder_core.checks.global_state import GlobalState
from thunder_core.ir.switches import read_switches, set_switches
from thunder_core.pytorch_internals import is_fwd_grad_enabled, is_torch_function_enabled
from thunder_core.tracing.frames import is_of_thunder
from thunder_frontend.record.interception import owner_of, static_attribute
from thunder_frontend.record.interception_table import TABLE

_BUILTINS: Final = dict(vars(builtins))
_DEVICE: Final = torch.ops.prim.device.default
_DISPATCHING: Final = {"__torch_dispatch__", "inner", "_fn", "find_torch_dispatch_rule"}
_TIMEOUT: Final = 60.0


class Interrupt(BaseException):
    """The exception of the handler."""


def _raise() -> None:
    raise Interrupt


class _Profiler:
    """Calls a function that raises at one point, counted from 0, and counts the points up to it."""

    def __init__(
        self, point: int, raises: Callable[[], None] = _raise, is_wanted: Callable[[FrameType], bool] = lambda _: True
    ) -> None:
        self.point = point
        self._raises = raises
        self._is_wanted = is_wanted
        self.seen = 0
        self.place = ""

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if event in ("call", "c_return") and not self.place:
            self.seen += 1
            if 0 <= self.point < self.seen and self._is_wanted(frame) and not _asks_for_device(frame):
                after = f" after {value.__qualname__}" if event == "c_return" else ""
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}{after}"
                del frame, value  # the traceback of the exception holds this frame
                self._raises()

    def run(self, call: Callable[[], Any]) -> None:
        """Call a function under this profiler."""
        try:
            sys.setprofile(self)
            call()
        finally:
            sys.setprofile(None)


def _asks_for_device(frame: FrameType | None) -> bool:
    """Whether PyTorch asks for the device of a fake tensor where an exception ends the process (``noexcept``)."""
    while frame is not None:
        if frame.f_code.co_name in _DISPATCHING:  # no others: a frame whose locals were read is not cleared
            held = frame.f_locals
            if any(value is _DEVICE for value in (*held.values(), *held.get("args", ()))):
                return True
        frame = frame.f_back
    return False


def _profiled(call: Callable[[], Any], point: int) -> _Profiler:
    profiler = _Profiler(point)
    try:
        profiler.run(call)
    except BaseException:
        if not profiler.place:
            raise
    return profiler


def raised_with(call: Callable[[], Any], point: int, raises: Callable[[], None]) -> tuple[str, BaseException | None]:
    """Interrupt Thunder in a call, from a point on, by an exception of ``raises``: the place, and what the call raises.

    Not in a generator: where the collector ends one, the exception is lost.
    """
    profiler = _Profiler(point, raises, lambda frame: is_of_thunder(frame.f_code) and not _is_generator(frame))
    try:
        profiler.run(call)
    except BaseException as error:
        return profiler.place, error
    return profiler.place, None


def interrupt(call: Callable[[], Any], point: int) -> str:
    """Interrupt a call at a point. Returns the place; empty if the call has fewer points."""
    return _profiled(call, point).place


def _is_generator(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def count_points(call: Callable[[], Any]) -> int:
    """The number of points of a call."""
    return _profiled(call, -1).seen


def state() -> dict[str, Any]:
    """What a call may leave changed: PyTorch's modes, builtins, and what recordings replace."""
    held = vars(builtins)
    values = {
        **GlobalState.current().values,
        **read_switches(),
        "torch functions": is_torch_function_enabled(),
        "forward gradients": is_fwd_grad_enabled(),
        "is_compiling": torch.compiler.is_compiling(),
        "profiler": sys.getprofile(),
        "hash of tensors": torch.Tensor.__hash__,
        "builtins": [name for name in {**_BUILTINS, **held} if held.get(name) is not _BUILTINS.get(name)],
    }
    for row in TABLE:
        if (owner := owner_of(row)) is not None:
            attribute = static_attribute(owner, row.name)
            code = getattr(getattr(attribute, "__func__", attribute), "__code__", None)
            values[f"{owner!r}.{row.name}"] = (attribute, code)
    return values


def left_by(call: Callable[[], Any], points: Iterator[int]) -> Iterator[str]:
    """Interrupt a call at points, up to the last point of the call: for each, what it left changed; empty if nothing.

    What it left is put back, as far as possible.
    """
    for point in points:
        before, switches = state(), read_switches()
        place = interrupt(call, point)
        if not place:
            return
        changed = [f"{name} is {new}" for name, new in state().items() if new != before[name]]
        yield f"interrupted at {place}: {', '.join(changed)}" if changed else ""
        set_switches(switches)


def in_another_thread(call: Callable[[], Any]) -> Any:
    """The result of a call in another thread, which cannot take a lock that this one holds.

    Raises:
        TimeoutError: it did not end in time.
    """
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    if not results:
        raise TimeoutError("a call in another thread does not end")
    return results[0]


# ---- programs --------------------------------------------------------------------------------------------------------


class Statistics(torch.nn.Module):
    """Writes a buffer and an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Linear layer and sum of its results so far."""
        y = torch.relu(self.linear(x))
        self.total += y.detach().sum(0)
        return y


def modes(x: torch.Tensor) -> torch.Tensor:
    """Enters modes."""
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", torch.bfloat16):
        y = y @ x
    return y + torch.nn.functional.relu(x)


def kernels(x: torch.Tensor) -> torch.Tensor:
    """Selects a kernel of attention."""
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def value(x: torch.Tensor) -> torch.Tensor:
    """Reads a value."""
    return x * 2 if x.sum() > 0 else x * 3


def eager_modes(x: torch.Tensor) -> torch.Tensor:
    """Runs as it was recorded, under autograd and autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        y = (x @ x).float()
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return gradient * x


class Doubled(torch.autograd.Function):
    """Doubles a tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice ``x``."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Twice the gradient."""
        return gradient * 2


def own_function(x: torch.Tensor) -> torch.Tensor:
    """Calls an `autograd.Function` and a checkpoint region."""
    y = Doubled.apply(x)
    return torch.utils.checkpoint.checkpoint(torch.sin, y, use_reentrant=False)


def _call(compiled: Callable[..., Any], x: torch.Tensor) -> None:
    compiled(x)


def _backward(compiled: Callable[..., Any], x: torch.Tensor) -> None:
    compiled(x).sum().backward()


def _second_derivatives(compiled: Callable[..., Any], x: torch.Tensor) -> None:
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    gradient.sum().backward()


PROGRAMS: Final[dict[str, tuple[Callable[[], Any], Callable[..., None]]]] = {
    "statistics": (Statistics, _call),
    "statistics, backward": (Statistics, _backward),
    "linear, second derivatives": (lambda: torch.nn.Linear(3, 3), _second_derivatives),
    "modes": (lambda: modes, _backward),
    "own function": (lambda: own_function, _backward),
    "kernels": (lambda: kernels, _backward),
    "value": (lambda: value, _call),
    "eager modes": (lambda: eager_modes, _backward),
}
"""By name, a function that creates a program, and what a call of it does."""
RECORDED: Final = ("statistics, backward", "linear, second derivatives", "own function", "value")
"""Programs that enter no modes. In eager PyTorch, too, an exception in `__enter__` or `__exit__` leaves a mode on."""


class Called:
    """Calls of one program: the function to interrupt."""

    def __init__(self, name: str, **options: Any) -> None:
        self._create, self._calls = PROGRAMS[name]
        self._options = options
        self._x = torch.full((3, 3), 0.5, requires_grad=True)
        self.again()

    def again(self) -> None:
        """The next call is a first one."""
        self._compiled = thunder.jit(self._create(), **self._options)

    def __call__(self) -> None:
        self._calls(self._compiled, self._x)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=1000, help="of points of first calls")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PROGRAMS, help="one program")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(PROGRAMS)
    generator = random.Random(options.seed)
    for name in chosen:
        called = Called(name, executors=[])
        called()
        called.again()
        first = count_points(called)
        later = list(left_by(called, iter(range(10**6))))
        number = options.number // len(RECORDED) if name in RECORDED else 0
        points = [generator.randrange(first) for _ in range(number)]
        new = [left for point in points for left in _first_call(called, point)]
        called()
        in_another_thread(called)
        print(f"{name}: {len(later)} interrupted later calls, {len(new)} first calls")
        for left in filter(None, [*later, *new]):
            print(f"    {left}")


def _first_call(called: Called, point: int) -> list[str]:
    called.again()
    left = list(left_by(called, iter([point])))
    try:
        called()
    except Exception as error:
        left.append(f"interrupted at point {point}, the next call raises {error!r}")
    return left


if __name__ == "__main__":
    main()
