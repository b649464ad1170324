"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

if TYPE_CHECKING:  # classes for annotations
    from torch._ops import HigherOrderOperator as HigherOrderOperator

_PROGRAMS: Final = "programs of torch.export"

ROWS: Final = (
    Name("torch._ops.HigherOrderOperator", _PROGRAMS),
    Name("torch.export._unlift._check_input_constraints_pre_hook", _PROGRAMS, name="check_inputs"),
    Name(
        "torch._higher_order_ops.auto_functionalize.auto_functionalized_v2_dense",
        "decomposed calls of operators that write",
    ),
    Name("torch.fx._pytree.tree_flatten_spec", _PROGRAMS),
    Name("torch.fx.GraphModule._in_spec", _PROGRAMS, kind=Kind.ATTRIBUTE),
    Name("torch.fx.GraphModule._out_spec", _PROGRAMS, kind=Kind.ATTRIBUTE),
    Name("torch.ops.aten._assert_scalar.default", _PROGRAMS, name="assert_scalar"),
    Name("torch.ops.aten._assert_tensor_metadata.default", _PROGRAMS, name="assert_tensor_metadata"),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
