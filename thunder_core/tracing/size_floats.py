"""Floats that PyTorch's decompositions compute from sizes that vary, ``1.0 / (x.numel() / x.shape[1])``, as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.pytorch_internals import OpOverload, schema_of

_aten: Final = torch.ops.aten
_OPERATORS: Final = {
    "FloatTrueDiv": _aten.div.Tensor,
    "IntTrueDiv": _aten.div.Tensor,
    "Mul": _aten.mul.Tensor,
    "Add": _aten.add.Tensor,
}
"""ATen operators by the name of SymPy's function of numbers."""


def with_tensors(operator: Any, args: tuple[Any, ...], call: Callable[..., torch.Tensor]) -> tuple[Any, ...]:
    """The arguments of a call of an ATen operator, with tensors for the floats of sizes where the schema takes tensors.

    They have no dimensions, so that the result has the dtype that a float gives.

    Args:
        call: calls an ATen operator, and records the call.

    Raises:
        SizeVariesError: a float is not a sum, product or quotient of sizes and constants.
    """
    if not any(isinstance(arg, torch.SymFloat) for arg in args) or not isinstance(operator, OpOverload):
        return args
    parameters = schema_of(operator).arguments
    tensor = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
    if tensor is None or not tensor.dtype.is_floating_point:
        return args
    options = {"dtype": torch.float64 if tensor.dim() else tensor.dtype, "device": tensor.device}

    def number(expression: Any, environment: Any) -> torch.Tensor:
        if expression.is_number:
            return call(_aten.scalar_tensor.default, float(expression), **options)
        if expression.is_integer:
            return call(_aten.scalar_tensor.default, environment.create_symintnode(expression, hint=None), **options)
        name = type(expression).__name__
        operands = [number(operand, environment) for operand in expression.args]
        if name == "ToFloat":
            return operands[0]
        if name not in _OPERATORS:
            raise SizeVariesError(f"a call gives the number {expression}, which depends on sizes that vary")
        result = operands[0]
        for operand in operands[1:]:
            result = call(_OPERATORS[name], result, operand)
        return result

    return tuple(
        [
            number(arg.node.expr, arg.node.shape_env)
            if isinstance(arg, torch.SymFloat) and isinstance(parameter.type, torch.TensorType)
            else arg
            for arg, parameter in zip(args, parameters)
        ]
    )
