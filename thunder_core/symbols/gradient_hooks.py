"""Symbols of ops that register user functions to be called with gradients.

Full backward hooks of a module become three ops: one creates a `ModuleCall`, one passes the inputs of the module's call
through it, and one the outputs. Under PyTorch's autograd their effect is that of module hooks in eager. A hook on a
tensor is the op ``tensor.register_hook(hook)``. Plugins register functions on the gradients of inputs (parameters, for
instance) by the op `on_input_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.hooks import BackwardHook

from thunder_core.ir.symbol import Symbol, Tag

Gradients = tuple[torch.Tensor | None, ...]


class _Places(tuple[bool, ...]):
    """Represents the arguments or results of a call by bools: whether each is a tensor."""


class ModuleCall(BackwardHook):
    """PyTorch's state shared by the hooks of one module call, with methods to run the hooks without autograd.

    As in eager, it stores the gradients of the outputs between the hooks on outputs and those on inputs.
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
        """Run the hooks on gradients of outputs; return the new ones. ``tensors``: which outputs are tensors."""
        self.setup_output_hook(_Places(tensors))
        return self._call(None, _chosen(gradients, tensors), gradients, tensors)

    def at_inputs(self, gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
        """Likewise for the gradients of inputs; must be called after `at_outputs`."""
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
        results = iter(result)
        return tuple(
            [
                checked(gradient, next(results), self._hook) if tensor else None
                for gradient, tensor in zip(gradients, tensors, strict=True)
            ]
        )


def _chosen(gradients: Gradients, tensors: tuple[bool, ...]) -> Gradients:
    return tuple([gradient for gradient, tensor in zip(gradients, tensors, strict=True) if tensor])


def checked(gradient: torch.Tensor | None, result: Any, hook: Callable[..., Any]) -> torch.Tensor | None:
    """The validated result of a hook on a gradient; zeros for None. Raises PyTorch's errors if it does not fit."""
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
    """Pass the tensor arguments of a module's call through ``call``, which gets their gradients in backward."""
    return call.setup_input_hook(values)


def module_outputs(call: ModuleCall, values: tuple[torch.Tensor | None, ...]) -> Any:
    """Pass the tensor results of a module's call through ``call``, likewise."""
    return call.setup_output_hook(values)


def hooked(hooks: tuple[Callable[..., Any], ...], values: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """A value with these hooks, which are called with its gradient one after the other."""
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
