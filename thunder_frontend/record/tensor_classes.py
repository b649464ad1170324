"""The interface of plugins that record calls with wrapper subclasses: tensors that hold tensors.

The class of such a tensor has a ``__torch_dispatch__``, which replaces each operator by others: `DTensor`, quantized
weights of torchao, jagged tensors. The core refuses these classes. A plugin that records them provides a
`TensorClasses` by the hook ``thunder_tensor_classes``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch

from thunder_core.errors import UnsupportedError, advice_on_plugins
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.subclasses import PLAIN_TENSORS, SUBJECT, wrapper_error

if TYPE_CHECKING:
    from thunder_core.ir.proxy import Proxy
    from thunder_frontend.observe.observer import Observer
    from thunder_frontend.record.open_trace import Region
    from thunder_frontend.record.reconstruction import Reconstructor
    from thunder_frontend.record.recorder import Recorder


class WrapperCalls(ABC):
    """Records calls with wrapper subclasses in one recording of a program.

    Each method raises `UnsupportedError` for a call or a tensor that cannot be recorded.
    """

    @abstractmethod
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrappers: list[torch.Tensor]) -> Any:
        """The result of a torch function with ``wrappers`` among its arguments, after writing the ops for it.

        Args:
            wrappers: the wrappers among the arguments; empty for an autograd.Function that creates a wrapper from plain
                tensors, or that communicates.
        """

    @abstractmethod
    def dispatch(self, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an ATen operator with arguments of the wrapper classes ``kinds``."""

    @abstractmethod
    def in_checkpoint(self, region: Region) -> AbstractContextManager[None]:
        """A context that is entered while the ops of a checkpoint region are recorded."""

    @abstractmethod
    def rebuild(self, reconstructor: Reconstructor, wrapper: torch.Tensor) -> str:
        """The expression for a wrapper that the program returns or stores, for the output reconstruction."""

    @abstractmethod
    def finish(self, outputs: list[Proxy]) -> None:
        """Complete the ops with their derivatives, after the program has ended.

        Args:
            outputs: the outputs of the trace; may be replaced by other values in place.
        """


class TensorClasses(ABC):
    """The object that a plugin provides by ``thunder_tensor_classes``: records programs with wrapper subclasses.

    Attributes:
        name: the name of its specification.
    """

    name: str

    def supports_class(self, kind: type) -> type | None:
        """The class that this support is for: ``kind`` itself or a base of it. None if it does not record ``kind``.

        By default it is for all classes.

        Of several supports that a configuration names, the one for the most derived class records ``kind``; one for all
        classes returns `torch.Tensor`, and also records autograd.Functions that create wrappers from plain tensors.
        """
        return torch.Tensor

    @abstractmethod
    def start(self, recorder: Recorder, observer: Observer) -> WrapperCalls:
        """The `WrapperCalls` for one recording, called before the program runs."""


@dataclass(frozen=True)
class RefusedClasses(TensorClasses):
    """The core's default: refuses each wrapper subclass."""

    name: str = field(default="none", init=False)

    def supports_class(self, kind: type) -> None:
        return None

    def start(self, recorder: Recorder, observer: Observer) -> WrapperCalls:
        return RefusedCalls()


class RefusedCalls(WrapperCalls):
    """Refuses each call."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrappers: list[torch.Tensor]) -> NoReturn:
        name = getattr(func, "__name__", str(func))
        if not wrappers:
            raise UnsupportedError(
                f"{name} returns a class that has a __torch_dispatch__, or communicates and has a derivative",
                location=user_location(),
                advice=(*advice_on_plugins(SUBJECT), *PLAIN_TENSORS),
            )
        raise wrapper_error(f"an argument of {name}", type(wrappers[0]))

    def dispatch(self, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        raise wrapper_error(f"an argument of {func}", kinds[0])

    def in_checkpoint(self, region: Region) -> AbstractContextManager[None]:
        return nullcontext()

    def rebuild(self, reconstructor: Reconstructor, wrapper: torch.Tensor) -> str:
        raise wrapper_error("a tensor that the program returns or stores", type(wrapper))

    def finish(self, outputs: list[Proxy]) -> None:
        return None


_REFUSED: Final = RefusedClasses()
_current: Final[ContextVar[TensorClasses]] = ContextVar("tensor classes", default=_REFUSED)


@contextmanager
def recording_with(classes: TensorClasses) -> Iterator[None]:
    """Use ``classes`` for the programs that are recorded inside this context."""
    token = _current.set(classes)
    try:
        yield
    finally:
        _current.reset(token)


def current_tensor_classes() -> TensorClasses:
    """The `TensorClasses` of the current context."""
    return _current.get()
