"""Symbols of lines that ask for functions of the user's to be called with gradients.

Full backward hooks of a module are three lines: one makes a `ModuleCall`, one passes the inputs of the module's call
through it, and one the outputs. Under PyTorch's autograd these do what calls of modules with hooks do in eager. A hook
on a tensor is the line ``tensor.register_hook(hook)``. Plugins have functions called with the gradients of inputs,
parameters say, by the line `on_input_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.hooks import BackwardHook

from thunder_core.ir.symbol import Symbol, Tag

Gradients = tuple[torch.Tensor | None, ...]


class _Places(tuple[bool, ...]):
    """Stands for the arguments or results of a call: which of them are tensors."""


class ModuleCall(BackwardHook):
    """What the hooks of one call of a module share: PyTorch's class, whose hooks can be called without its autograd.

    Between the hooks on outputs and those on inputs it remembers the gradients of outputs, as in eager.
    """

    _hook: Callable[[Any, Any], Any]

    def __init__(
        self,
        module: torch.nn.Module,
        hooks: tuple[Callable[..., Any], ...],
        pre_hooks: tuple[Callable[..., Any], ...],
        count: int,
        differentiable: tuple[int, ...] | None,
    ) -> None:
        super().__init__(module, list(hooks), list(pre_hooks))
        self.n_inputs = count
        self.input_tensors_index: Any = differentiable

    def at_outputs(self, gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
        """What the hooks make of the gradients of outputs. ``tensors`` says which outputs are tensors."""
        self.setup_output_hook(_Places(tensors))
        return self._call(None, _chosen(gradients, tensors), gradients, tensors)

    def at_inputs(self, gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
        """Likewise for the inputs; to be called after `at_outputs`."""
        self.setup_input_hook(_Places(tensors))
        return self._call(_chosen(gradients, tensors), None, gradients, tensors)

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> None:
        """Takes the hook that PyTorch's class would register with a node of the autograd graph."""
        self._hook = hook

    def _apply_on_tensors(self, fn: Callable[[Any], None], args: Any) -> tuple[Any, Any]:
        if not isinstance(args, _Places):
            plain: tuple[Any, Any] = super()._apply_on_tensors(fn, args)
            return plain
        fn(self)
        return args, tuple([index for index, tensor in enumerate(args) if tensor])

    def _call(self, grad_input: Any, grad_output: Any, gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
        result = self._hook(grad_input, grad_output)
        if result is None:
            return gradients
        made = iter(result)
        return tuple(
            [
                checked(gradient, next(made), self._hook) if tensor else None
                for gradient, tensor in zip(gradients, tensors, strict=True)
            ]
        )


def _chosen(gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
    return tuple([gradient for gradient, tensor in zip(gradients, tensors, strict=True) if tensor])


def checked(gradient: torch.Tensor | None, result: Any, hook: Callable[..., Any]) -> torch.Tensor | None:
    """What a hook returned in place of a gradient; zeros for None. Raises what PyTorch raises if it does not fit."""
    if gradient is None:
        return None
    if result is None:
        return torch.zeros_like(gradient)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    name = getattr(hook, "__name__", "<unknown>")
    if result.type() != gradient.type():
        raise RuntimeError(
            f"hook '{name}' has changed the type of value (was torch.{gradient.type()} got torch.{result.type()})"
        )
    if result.shape != gradient.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    return result


def module_inputs(call: ModuleCall, values: tuple[torch.Tensor | None, ...]) -> Any:
    """The arguments of a module's call, None for those that are no tensors; ``call`` hears of their gradients."""
    return call.setup_input_hook(values)


def module_outputs(call: ModuleCall, values: tuple[torch.Tensor | None, ...]) -> Any:
    """The results of a module's call, likewise."""
    return call.setup_output_hook(values)


def hooked(hooks: tuple[Callable[..., Any], ...], values: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """A value that has these hooks: they get its gradient one after the other."""
    (value,) = values
    value = value.view_as(value)
    for hook in hooks if value.requires_grad else ():
        value.register_hook(hook)
    return (value,)


def on_input_gradients(hook: Callable[..., Any], tensors: tuple[torch.Tensor, ...], *options: Any) -> None:
    """Have ``hook(gradients, reached, *options)`` replace the gradients of inputs of the program, all together.

    It is called once in each backward, with None for gradients that are zero; ``reached`` says which of the inputs
    results of the program depend on. It returns as many gradients, None for inputs that are not reached. As a call this
    does nothing: where it runs nobody computes gradients.
    """


_HOOK: Final = frozenset({Tag.HOOK})
_PATH: Final = "thunder_core.symbols.gradient_hooks"
MODULE_CALL: Final = Symbol(f"{_PATH}.ModuleCall", ModuleCall, tags=_HOOK)
MODULE_INPUTS: Final = Symbol(f"{_PATH}.module_inputs", module_inputs, tags=_HOOK)
MODULE_OUTPUTS: Final = Symbol(f"{_PATH}.module_outputs", module_outputs, tags=_HOOK)
HOOKED: Final = Symbol(f"{_PATH}.hooked", hooked, tags=_HOOK)
INPUT_GRADIENTS: Final = Symbol(f"{_PATH}.on_input_gradients", on_input_gradients)
