"""Full backward hooks of modules, recorded with the calls that they belong to."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.functions import remove_hook
from thunder_core.symbols.gradient_hooks import MODULE_CALL, MODULE_INPUTS, MODULE_OUTPUTS, ModuleCall
from thunder_core.tracing.frames import user_location
from thunder_frontend.record import subclasses
from thunder_frontend.record.backward_code import BackwardCode
from thunder_frontend.record.interception import copy_of
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.subclasses import classed


class RecordedModuleCall:
    """Replaces `torch.utils.hooks.BackwardHook` while a program is recorded: hooks become ops of the trace.

    Args:
        module: the module that is called.
        hooks, pre_hooks: its hooks at the time of the call, and those of all modules.
    """

    def __init__(
        self,
        recorder: Recorder,
        module: torch.nn.Module,
        hooks: list[Callable[..., Any]],
        pre_hooks: list[Callable[..., Any]],
    ) -> None:
        self.recorder = recorder
        self.owner = (module, tuple(hooks), tuple(pre_hooks))
        self.call: ModuleCall | None = None

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to pass to the module."""
        if not torch.is_grad_enabled():
            return args  # the results will have no gradients either
        tensors = [index for index, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
        differentiable = tuple(tensors) if _differentiable(args) else None
        self.call = self._record_call(len(args), differentiable)
        return self._record_boundary(MODULE_INPUTS, args)

    def setup_output_hook(self, result: Any) -> Any:
        """The result to return to the caller of the module."""
        if isinstance(result, tuple):
            return self._record_boundary(MODULE_OUTPUTS, result)
        return self._record_boundary(MODULE_OUTPUTS, (result,))[0]

    def _record_call(self, count: int, differentiable: tuple[int, ...] | None) -> ModuleCall:
        recorder = self.recorder
        call = ModuleCall(*self.owner, count, differentiable)
        recorder.backward_code += map(BackwardCode.of_hook, self.owner[1] + self.owner[2])
        proxy = OpaqueProxy(recorder.trace.names.intermediate(), "ModuleCall")
        module, hooks, pre_hooks = self.owner
        arguments = (
            recorder.inputs.object(module),
            tuple(map(recorder.inputs.object, hooks)),
            tuple(map(recorder.inputs.object, pre_hooks)),
            count,
            differentiable,
        )
        recorder.trace.write(MODULE_CALL, arguments, {}, proxy, Effects(external=True))
        recorder.inputs.bind(call, proxy)
        return call

    def _record_boundary(self, symbol: Symbol, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.call is None or not _differentiable(values) or not torch.is_grad_enabled():
            return values
        separate = _separate_views(values)
        kinds = [self._class_of_view(value) for value in values]
        with DisableTorchFunction():
            results = self.recorder.call_symbol(symbol, (self.call, separate), {})
            ops = self.recorder.trace.ops
            ops[-1] = replace(ops[-1], location=user_location())
            items = [
                value if new is None else classed(self.recorder, new, kind)
                for new, value, kind in zip(results, values, kinds, strict=True)
            ]
        return tuple(items) if type(values) is tuple else type(values)(*items)

    def _class_of_view(self, value: Any) -> type[torch.Tensor]:
        """The class of the view that PyTorch passes on in place of ``value``.

        Raises:
            UnsupportedError: a user's class overrides ``view_as`` to return something other than a view.
        """
        if not isinstance(value, torch.Tensor) or not subclasses.overrides_calls(type(value)):
            return torch.Tensor
        with torch.no_grad():
            view = value.view_as(value)
        one, other = self.recorder.tensors.proxy_of(value), self.recorder.tensors.proxy_of(view)
        if (one.storage, one.geometry, one.dtype) != (other.storage, other.geometry, other.dtype):
            kind = type(value)
            raise UnsupportedError(
                f"{module_of(kind)}.{kind.__qualname__} overrides view_as, which modules with backward hooks call on "
                "their arguments and results",
                location=user_location(),
                advice=("pass plain tensors to the module: tensor.as_subclass(torch.Tensor)",),
            )
        return type(view)


def _differentiable(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def _separate_views(values: tuple[Any, ...]) -> tuple[torch.Tensor | None, ...]:
    """The tensors among ``values``; a tensor that occurs several times gets a separate view for each further place."""
    views: list[torch.Tensor | None] = []
    for index, value in enumerate(values):
        again = any(value is other for other in values[:index])
        views.append((value.view_as(value) if again else value) if isinstance(value, torch.Tensor) else None)
    return tuple(views)


def has_backward_hooks(module: torch.nn.Module) -> bool:
    """Whether calls of the module run backward hooks: hooks of the module, or hooks of all modules."""
    return any(module._get_backward_hooks()) or any(module._get_backward_pre_hooks())


def backward_hook(
    recorder: Recorder, original: type, module: torch.nn.Module, hooks: list[Any], pre_hooks: list[Any]
) -> RecordedModuleCall:
    """The interception of `torch.utils.hooks.BackwardHook`, which modules create for each call."""
    return RecordedModuleCall(recorder, module, hooks, pre_hooks)


_REMOVE_HOOK = Symbol("thunder_core.symbols.functions.remove_hook", remove_hook, tags=frozenset({Tag.AS_RECORDED}))
_remove = copy_of(RemovableHandle.remove)


class TracedHandle(RemovableHandle):
    """The handle that ``register_hook`` returns while a program is recorded.

    The handle of each run becomes a value of the trace when the program removes it, returns it or stores it.
    """

    def __init__(self, recorder: Recorder, op: BoundSymbol) -> None:  # it has no hooks: no call of the base
        self._recorder = recorder
        self._op = op
        self._proxy: OpaqueProxy | None = None

    def remove(self) -> None:
        """Record that the hook is removed here."""
        _record_removal(self._recorder, self.proxy())

    def proxy(self) -> OpaqueProxy:
        """The handle as a value of the trace."""
        if self._proxy is None:
            self._proxy = OpaqueProxy(self._recorder.trace.names.intermediate(), RemovableHandle.__qualname__)
            self._replace(replace(self._op, symbol=as_recorded(self._op.symbol), output=self._proxy))
        return self._proxy

    def _replace(self, op: BoundSymbol) -> None:
        for ops in self._recorder.trace.outwards():
            for index, known in enumerate(ops):
                if known is self._op:
                    ops[index] = op
                    return
        raise UnsupportedError(
            "the handle of a hook that was registered inside of a checkpoint region is used outside of it",
            location=user_location(),
            advice=("register the hook outside of the region",),
        )


def register_hook(
    recorder: Recorder, register: Callable[..., Any], tensor: torch.Tensor, hook: Callable[..., Any]
) -> TracedHandle:
    """Record a call of ``register``, a method of tensors that takes a hook."""
    handle_of_fake: RemovableHandle = recorder.call(register, (tensor, hook), {})
    _remove(handle_of_fake)  # a backward on fakes must not call the hook
    recorder.backward_code.append(BackwardCode.of_hook(hook))
    return TracedHandle(recorder, recorder.trace.ops[-1])


def remove(recorder: Recorder, original: Callable[[RemovableHandle], None], handle: RemovableHandle) -> None:
    """The interception of ``handle.remove()`` for a hook that existed before the program.

    Recorded as an op for a hook on a tensor. Hooks of modules are attributes of objects, whose writes are recorded.
    """
    if _is_in_attribute(handle.hooks_dict_ref()):
        original(handle)
        return
    proxy = recorder.inputs.object(handle)
    if recorder.inputs.is_constant_object(handle):
        raise UnsupportedError(
            "the program removes a hook that was set before, through a handle without an access path for the next call",
            location=user_location(),
            advice=("pass the handle as an argument", "remove the hook outside of the compiled function"),
        )
    _record_removal(recorder, proxy)


def _record_removal(recorder: Recorder, proxy: Any) -> None:
    recorder.trace.write(_REMOVE_HOOK, (proxy,), {}, effects=Effects(external=True))


def _is_in_attribute(hooks: Any) -> bool:
    """Whether a dictionary of hooks is an attribute of a Python object; those of tensors are held by C++."""
    if hooks is None:
        return False
    return any(isinstance(holder, dict) and _holds(holder, hooks) for holder in gc.get_referrers(hooks))


def _holds(holder: dict[Any, Any], hooks: Any) -> bool:
    return any(type(name) is str and name.endswith("hooks") and item is hooks for name, item in holder.items())
