"""Support of wrapper subclasses by several plugins: for each class, that for its most derived base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.errors import PluginError, UnsupportedError
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.subclasses import PLAIN_TENSORS
from thunder_frontend.record.tensor_classes import RefusedCalls, TensorClasses, WrapperCalls

if TYPE_CHECKING:
    from thunder_core.ir.proxy import Proxy
    from thunder_frontend.observe.observer import Observer
    from thunder_frontend.record.open_trace import Region
    from thunder_frontend.record.reconstruction import Reconstructor
    from thunder_frontend.record.recorder import Recorder


@dataclass(frozen=True)
class ClassesByPlugin(TensorClasses):
    """The supports that a configuration names.

    Attributes:
        supports: each with its origin for messages: ``'wrappers' of the plugin 'subclasses' (...)``.
    """

    name: str = field(default="by plugin", init=False)
    supports: tuple[tuple[str, TensorClasses], ...]

    def supports_class(self, kind: type) -> type | None:
        return _nearest(kind, self.bases(kind))

    def bases(self, kind: type) -> list[type | None]:
        """For each support, the base of ``kind`` that it is for; None if it does not record ``kind``."""
        return [support.supports_class(kind) for _, support in self.supports]

    def start(self, recorder: Recorder, observer: Observer) -> WrapperCalls:
        return _CallsByPlugin(self, recorder, observer)


class _CallsByPlugin(WrapperCalls):
    """Calls the `WrapperCalls` of the plugin that supports the class of a wrapper."""

    def __init__(self, classes: ClassesByPlugin, recorder: Recorder, observer: Observer) -> None:
        self._classes = classes
        self._started = [support.start(recorder, observer) for _, support in classes.supports]
        self._refused = RefusedCalls()
        self._by_class: dict[type, WrapperCalls] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrappers: list[torch.Tensor]) -> Any:
        kinds = dict.fromkeys(map(type, wrappers)) or (torch.Tensor,)  # no wrapper: a Function that creates one
        return self._common(func, kinds).call(func, args, kwargs, wrappers)

    def dispatch(self, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._common(func, kinds).dispatch(func, kinds, args, kwargs)

    @contextmanager
    def in_checkpoint(self, region: Region) -> Iterator[None]:
        with ExitStack() as stack:
            for calls in self._started:
                stack.enter_context(calls.in_checkpoint(region))
            yield

    def rebuild(self, reconstructor: Reconstructor, wrapper: torch.Tensor) -> str:
        return self._of(type(wrapper)).rebuild(reconstructor, wrapper)

    def finish(self, outputs: list[Proxy]) -> None:
        for calls in self._started:
            calls.finish(outputs)

    def _common(self, func: Any, kinds: Iterable[type]) -> WrapperCalls:
        """The support of all classes of a call."""
        chosen = {kind: self._of(kind) for kind in kinds}
        calls = next(iter(chosen.values()))
        if all(other is calls for other in chosen.values()):
            return calls
        if self._refused in chosen.values():
            return self._refused
        names = " and ".join(sorted(_name(kind) for kind in chosen))
        raise UnsupportedError(
            f"{getattr(func, '__name__', func)} has arguments of the classes {names}, which different plugins record",
            location=user_location(),
            advice=PLAIN_TENSORS,
        )

    def _of(self, kind: type) -> WrapperCalls:
        if kind not in self._by_class:
            self._by_class[kind] = self._chosen(kind)
        return self._by_class[kind]

    def _chosen(self, kind: type) -> WrapperCalls:
        """The support for the most derived base of a class; one that refuses it if there is none.

        Raises:
            PluginError: two plugins support that base.
        """
        bases = self._classes.bases(kind)
        nearest = _nearest(kind, bases)
        if nearest is None:
            return self._refused
        chosen = [index for index, base in enumerate(bases) if base is nearest]
        if len(chosen) > 1:
            origins = [self._classes.supports[index][0] for index in chosen]
            supporters = " and by ".join(origins)
            raise PluginError(
                f"tensors of the class {_name(kind)} are supported by {supporters}, both for {_name(nearest)}",
                advice=("name one of them in the list tensor_classes of the configuration",),
            )
        return self._started[chosen[0]]


def _nearest(kind: type, bases: Iterable[type | None]) -> type | None:
    """The most derived of the bases of a class."""
    return min([base for base in bases if base is not None], key=kind.__mro__.index, default=None)


def _name(kind: type) -> str:
    return f"{module_of(kind)}.{kind.__qualname__}"
