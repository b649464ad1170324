"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

_SCRIPT = "programs in TorchScript inside of compiled programs"

ROWS: Final = (
    Name("torch._C.parse_schema", _SCRIPT),
    Name("torch._C._jit_get_operation", _SCRIPT),
    Name("torch._C._dispatch_find_schema_or_throw", _SCRIPT),
    Name("torch.jit.RecursiveScriptModule._c", _SCRIPT, name="state_of_script", kind=Kind.ATTRIBUTE,
        example="torch.jit.ScriptModule()"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
