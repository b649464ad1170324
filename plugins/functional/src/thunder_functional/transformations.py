"""Functions that compute gradients of functions, with the semantics of `torch.func`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.pytorch_internals import (
    assert_non_empty_tensor_output,
    slice_argnums,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
    treespec_pprint,
)
from thunder_frontend.record.recorder import Recorder, tensor_recorder
from thunder_functional.pullback import Pullback

Argnums = int | tuple[int, ...]


class Transformation:
    """A function derived from another one. Acquisition records its calls as ops; other calls run `torch.func`.

    Attributes:
        function: the function, module, or compiled function or module that is differentiated.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        inner = getattr(function, "__qualname__", type(function).__qualname__)
        self.__name__ = self.__qualname__ = f"{name}({inner})"
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = tensor_recorder()
        if recorder is None:
            return self.eager(*args, **kwargs)
        return self.record(recorder, *args, **kwargs)

    def eager(self, *args: Any, **kwargs: Any) -> Any:
        """Run the call with `torch.func`."""
        raise NotImplementedError

    def record(self, recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
        """Record the call as ops of the program that ``recorder`` records; returns its result."""
        raise NotImplementedError


class Gradient(Transformation):
    """``grad`` or ``value_and_grad`` of a function.

    Attributes:
        argnums: positions of the arguments to differentiate for, trees of floating-point or complex tensors.
        has_aux: whether the function returns a pair, of which only the first item is differentiated.
        with_value: whether the function's result is also returned, before the gradient.
    """

    def __init__(
        self, function: Callable[..., Any], argnums: Argnums, *, has_aux: bool = False, with_value: bool = False
    ) -> None:
        super().__init__(function, "value_and_grad" if with_value else "grad")
        self.__wrapped__ = function  # whose parameters it has
        self.argnums = argnums
        self.has_aux = has_aux
        self.with_value = with_value

    def eager(self, *args: Any, **kwargs: Any) -> Any:
        transformed = torch.func.grad_and_value(self.function, argnums=self.argnums, has_aux=self.has_aux)
        gradient, value = transformed(*args, **kwargs)
        return self._result(gradient, *(value if self.has_aux else (value,)))

    def record(self, recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
        operands, structure = tree_flatten(slice_argnums(args, self.argnums, as_tuple=False))
        pullback = Pullback(recorder, [_checked(operand) for operand in operands])
        inner = self._with_aliases(args, tree_unflatten(pullback.aliases, structure))
        output = pullback.run(lambda: self.function(*inner, **kwargs))
        scalar, *aux = self._parts(output)
        gradients = pullback.gradients([scalar], lambda outputs: [_one(outputs[0])])
        shown = [tree_map(pullback.outside, part) for part in (scalar, *aux)]
        return self._result(tree_unflatten(gradients, structure), *shown)

    def _with_aliases(self, args: tuple[Any, ...], aliases: Any) -> tuple[Any, ...]:
        inner = list(args)
        if isinstance(self.argnums, int):
            inner[self.argnums] = aliases
        else:
            for position, alias in zip(self.argnums, aliases, strict=True):
                inner[position] = alias
        return tuple(inner)

    def _parts(self, output: Any) -> tuple[Any, ...]:
        """The scalar, and the auxiliary output if there is one."""
        where = f"{self.__name__}(*args)"
        if self.has_aux and not (isinstance(output, tuple) and len(output) == 2):
            raise RuntimeError(f"{where}: the function should return a tuple (output, aux) if has_aux is True")
        scalar, *aux = output if self.has_aux else (output,)
        if not isinstance(scalar, torch.Tensor):
            raise RuntimeError(f"{where}: expected the function to return a Tensor, got {type(scalar)}")
        if scalar.dim() != 0:
            raise RuntimeError(
                f"{where}: expected the function to return a scalar Tensor, got a tensor with {scalar.dim()} dims. "
                "Maybe you wanted to use vjp instead?"
            )
        if scalar.is_complex():
            raise RuntimeError(f"{where}: expected the function to return a real Tensor, got {scalar.dtype}")
        for leaf in tree_leaves(aux):
            if not isinstance(leaf, torch.Tensor):
                raise RuntimeError(f"{where}: expected tensors in the auxiliary output, got {type(leaf)}")
        return scalar, *aux

    def _result(self, gradient: Any, value: Any, *aux: Any) -> Any:
        if self.with_value:
            return ((value, *aux) if aux else value), gradient
        return (gradient, *aux) if aux else gradient


class VectorJacobianProduct(Transformation):
    """``vjp`` of a function: called with primals and cotangents, returns outputs and gradients."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, "vjp")

    def __call__(self, primals: Any, cotangents: Any) -> Any:
        return super().__call__(primals, cotangents)

    def eager(self, primals: Any, cotangents: Any) -> Any:
        result: Any = torch.func.vjp(self.function, *_as_arguments(primals))
        outputs, pull = result
        gradients = pull(cotangents)
        return outputs, gradients if _are_arguments(primals) else gradients[0]

    def record(self, recorder: Recorder, primals: Any, cotangents: Any) -> Any:
        operands, structure = tree_flatten(primals)
        pullback = Pullback(recorder, [_checked(operand) for operand in operands])
        inner = _as_arguments(tree_unflatten(pullback.aliases, structure))
        output = pullback.run(lambda: self.function(*inner))
        outputs, given = self._pairs(output, cotangents)
        gradients = pullback.gradients(outputs, lambda _: given)
        return tree_map(pullback.outside, output), tree_unflatten(gradients, structure)

    def _pairs(self, output: Any, cotangents: Any) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """The tensors of the outputs and of the cotangents, in the same order."""
        outputs, structure = tree_flatten(output)
        given, other = tree_flatten(cotangents)
        assert_non_empty_tensor_output(outputs, "vjp(f)(primals, cotangents)")
        for leaf in outputs:
            if not isinstance(leaf, torch.Tensor) or not _differentiable(leaf):
                what = f"a tensor of {leaf.dtype}" if isinstance(leaf, torch.Tensor) else f"{type(leaf)}"
                raise RuntimeError(
                    f"{self.__name__}: all outputs must be floating-point or complex tensors, got {what}"
                )
        if structure != other:
            raise RuntimeError(
                f"{self.__name__}: expected cotangents of the structure of the outputs; the cotangents are "
                f"{treespec_pprint(other)}, the outputs are {treespec_pprint(structure)}"
            )
        for index, (leaf, cotangent) in enumerate(zip(outputs, given, strict=True)):
            if not isinstance(cotangent, torch.Tensor) or cotangent.shape != leaf.shape:
                shape = tuple(cotangent.shape) if isinstance(cotangent, torch.Tensor) else type(cotangent)
                raise RuntimeError(
                    f"{self.__name__}: cotangent {index} has the shape {shape}, and its output {tuple(leaf.shape)}"
                )
        return outputs, given


def _are_arguments(primals: Any) -> bool:
    return isinstance(primals, tuple) and not hasattr(primals, "_fields")


def _as_arguments(primals: Any) -> tuple[Any, ...]:
    """The primals as a tuple of arguments: a tuple is returned unchanged, any other value is the only argument."""
    return primals if _are_arguments(primals) else (primals,)


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _checked(operand: Any) -> torch.Tensor:
    if not isinstance(operand, torch.Tensor):
        raise ValueError(f"only tensors can be differentiated with respect to, got {type(operand)}")
    if not _differentiable(operand):
        raise RuntimeError(f"only tensors of floating point dtype can require gradients, got {operand.dtype}")
    return operand


def _one(scalar: torch.Tensor) -> torch.Tensor:
    """The gradient of a scalar with respect to itself. It does not read the scalar, which may otherwise be dead."""
    return torch.ones((), dtype=scalar.dtype, device=scalar.device)
