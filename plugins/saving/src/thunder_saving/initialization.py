"""The initialization of a model by its own methods, and which tensors that has written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import OpOverload, TorchDispatchMode, storage_identity, tree_leaves

_OVERWRITES: Final = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "exponential_", "log_normal_", "cauchy_"}
    | {"geometric_", "random_", "_foreach_copy_", "_foreach_zero_"}
)
"""In-place operators whose result does not depend on what they write to."""


class WrittenElements(TorchDispatchMode):
    """A mode that notes which elements of tensors have been written with defined values.

    Operators with an ``out`` argument write all of it, `_OVERWRITES` all of their first one. Other operators, and what
    is computed from elements without a value, do not count.

    Args:
        tensors: the tensors, whose elements have no values.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._tensors = {storage_identity(each.untyped_storage()): each for each in tensors if each.numel()}
        self._masks: dict[int, torch.Tensor] = {}

    def lacks_values(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor has elements without values."""
        return storage_identity(tensor.untyped_storage()) in self._tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = _written(func, args, kwargs)
        result = func(*args, **kwargs)
        if written:
            ids = {id(each) for each in written}
            tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
            if not any(id(each) not in ids and self.lacks_values(each) for each in tensors):
                for each in written:
                    self._note(each)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        key = storage_identity(tensor.untyped_storage())
        whole = self._tensors.get(key)
        if whole is None:
            return
        if tensor.nbytes == whole.nbytes and tensor.stride() == whole.stride():
            done = True
        elif tensor.element_size() != whole.element_size():
            done = tensor.nbytes == whole.untyped_storage().nbytes()
        else:
            count = whole.untyped_storage().nbytes() // whole.element_size()
            mask = self._masks.setdefault(key, torch.zeros(count, dtype=torch.bool, device=tensor.device))
            mask.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
            done = bool(mask.as_strided(whole.shape, whole.stride(), whole.storage_offset()).all())
        if done:
            del self._tensors[key]
            self._masks.pop(key, None)


def _written(func: OpOverload, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensor arguments that an operator overwrites."""
    arguments = func._schema.arguments
    out = [kwargs[each.name] for each in arguments if each.is_out and kwargs.get(each.name) is not None]
    first = [args[0]] if func.overloadpacket.__name__ in _OVERWRITES and args else []
    return [each for each in tree_leaves((out, first)) if isinstance(each, torch.Tensor)]


def initialize(
    module: torch.nn.Module, lacks_values: Callable[[torch.nn.Module], bool], *, whole: bool, own: Any
) -> None:
    """Call the methods with which a model initializes itself.

    Args:
        lacks_values: whether parameters, buffers or other tensors of this submodule alone lack values.
        whole: whether all of the model is initialized. If not, a submodule that lacks no values is left alone, and so
            are the methods of the model as soon as nothing does.
        own: a function of the module to call instead; or None.
    """
    if own is not None:
        own(module)
        return
    for part in _children_first(module):
        reset = _method(part, ("reset_parameters", "_reset_parameters"), 0)
        # Of a tied weight the first module decides. Items of a ParameterList are initialized by its owner.
        if reset is not None and any(lacks_values(each) for each in part.modules()):
            reset()
    _by_model(module, None, {id(part) for part in module.modules() if whole or lacks_values(part)})
    _by_models(module, lacks_values, whole)


def _children_first(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Submodules before the modules that own them, each once: the order in which constructors initialize."""
    found: dict[int, torch.nn.Module] = {}

    def visit(part: torch.nn.Module) -> None:
        for child in part.children():
            if id(child) not in found:
                visit(child)
        found.setdefault(id(part), part)

    visit(module)
    return list(found.values())


def _by_model(part: torch.nn.Module, initializer: Callable[..., Any] | None, chosen: set[int]) -> None:
    """Call ``_init_weights(submodule)`` of the nearest module that has it, for each chosen submodule."""
    initializer = _method(part, ("_init_weights",), 1) or initializer
    for child in part.children():
        _by_model(child, initializer, chosen)
    if initializer is not None and id(part) in chosen:
        chosen.remove(id(part))
        initializer(part)


def _by_models(module: torch.nn.Module, lacks_values: Callable[[torch.nn.Module], bool], whole: bool) -> None:
    """Call ``init_weights()`` of the outermost modules that have it, if values are lacking or nothing else did it."""
    done = not whole or _method(module, ("_init_weights",), 1) is not None
    if done and not any(lacks_values(part) for part in module.modules()):
        return
    init = _method(module, ("init_weights", "initialize_weights"), 0)
    if init is not None:
        init()
        return
    for child in module.children():
        _by_models(child, lacks_values, whole)


def _method(part: torch.nn.Module, names: Iterable[str], arguments: int) -> Callable[..., Any] | None:
    """The first of these methods of a module that can be called with this number of arguments."""
    for name in names:
        method = getattr(part, name, None)
        if callable(method):
            try:
                inspect.signature(method).bind(*[part] * arguments)
            except TypeError:
                continue
            return method  # type: ignore[no-any-return]
    return None
