"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

ROWS: Final = (
    Name("torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND", "dtypes of results",
        name="PROMOTION"),
    Name("torch._prims_common.elementwise_dtypes", "dtypes of results"),
    Name("torch._prims", "casts that regions contain", name="prims_definitions"),
    Name("torch._ops.OpOverload", "operators in regions"),
    Name("torch._ops.OpOverload._schema", "operators in regions", name="schema_of", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    *[Name(f"torch.ops.aten.{name}.default", "operators in regions", name=f"aten{name}")
      for name in ("_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "_to_copy",
                   "_unsafe_view")],
    Name("torch.utils._python_dispatch._disable_current_modes", "compiling a region while a program is recorded"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
