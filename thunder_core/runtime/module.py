"""What `thunder.jit` returns for a module."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from thunder_core.config.settings import Settings
from thunder_core.runtime.compiled import Compiled
from thunder_core.runtime.state_dict import compiled_state_dict, take_in_place, taken_in, without_states

_OWN = frozenset({"_original", "_compiled"})
# Part of being a module of its own; everything else that nn.Module defines acts on the original.
_NOT_FORWARDED = frozenset(
    {
        "__init__",
        "__call__",
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__dir__",
        "__repr__",
        "__setstate__",
        "forward",
        "state_dict",
        "load_state_dict",
        "_load_from_state_dict",
    }
)
# What containers of modules and parameters define besides, by the function that asks for it.
_SPECIAL: dict[str, Callable[..., Any]] = {
    "__bool__": operator.truth,
    "__len__": len,
    "__iter__": iter,
    "__reversed__": reversed,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__add__": operator.add,
    "__iadd__": operator.iadd,
    "__mul__": operator.mul,
    "__imul__": operator.imul,
    "__rmul__": lambda module, other: other * module,
    "__or__": operator.or_,
    "__ior__": operator.ior,
    "__ror__": lambda module, other: other | module,
}


class ThunderModule(torch.nn.Module):
    """A compiled module that shares everything but its ``forward`` with the original.

    Parameters, buffers, submodules, hooks, attributes and the training flag *are* the original's, so optimizers,
    ``state_dict``, ``to`` and the rest of `torch.nn.Module` work on either. Copying and pickling keep the original and
    the options; compiled entries are made again when needed. Where the original is a container it can be indexed,
    iterated over and added to; where it is none, that raises the original's error.
    """

    _original: torch.nn.Module
    _compiled: Compiled

    def __init__(self, module: torch.nn.Module, settings: Settings) -> None:
        # nn.Module.__init__ is not called: this object has no state of its own.
        self.__dict__["_original"] = module
        self.__dict__["_compiled"] = Compiled(module, type(module).__qualname__, settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_compiled"](*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The same as calling the module."""
        return self.__dict__["_compiled"](*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[None]:
        """A context in which backward does not synchronise gradients between processes.

        That of the original module if it has one, as `torch.nn.parallel.DistributedDataParallel` does. Any other module
        does not synchronise gradients by itself, so the context changes nothing: training loops may use it in any case.
        """
        original = getattr(self._original, "no_sync", None)
        return nullcontext() if original is None else original()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The original's, as the transforms give it out, and what executors keep between calls."""
        states = self._compiled.states
        changed = self._compiled.settings.transforms or states.found or states.loaded
        if args or not changed:  # PyTorch still takes them by position, and warns
            return self._original.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        return compiled_state_dict(self._original, self._compiled, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The original's, of what the transforms make of ``state_dict``; executors take what is theirs."""
        rest = without_states(self._compiled, state_dict)
        return self._original.load_state_dict(taken_in(self._compiled.settings.transforms, rest), *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_in_place(self._compiled, state_dict, prefix)
        self._original._load_from_state_dict(state_dict, prefix, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._original, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._original)})

    def __repr__(self) -> str:
        return f"ThunderModule({self._original!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return ThunderModule, (self._original, self._compiled.settings)


def _forward(name: str) -> Any:
    def method(self: ThunderModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._original, name)(*args, **kwargs)
        return self if result is self._original else result

    method.__name__ = name
    method.__doc__ = f"``{name}`` of the original module."
    return method


def _forward_special(name: str, function: Callable[..., Any]) -> Any:
    def method(self: ThunderModule, *args: Any) -> Any:
        result = function(self._original, *args)
        return self if result is self._original else result

    method.__name__ = name
    method.__doc__ = f"``{name}`` of the original module, if it has it."
    return method


for _name, _function in _SPECIAL.items():
    setattr(ThunderModule, _name, _forward_special(_name, _function))
for _name, _value in vars(torch.nn.Module).items():
    if callable(_value) and _name not in _NOT_FORWARDED and not (_name.startswith("__") and _name.endswith("__")):
        setattr(ThunderModule, _name, _forward(_name))
