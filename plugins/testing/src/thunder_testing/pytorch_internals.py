"""The private names of PyTorch that tests need but the compiler does not, and their purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo as OpInfo

DYNAMO: Final = "torch._dynamo"
"""The module that optimizers and `torch.compile` import when they are first used."""
_SAMPLES = "samples of PyTorch's operators for tests of executors"

ROWS: Final = (
    Name("torch.testing._internal.common_methods_invocations.op_db", _SAMPLES),
    Name("torch.testing._internal.common_utils", _SAMPLES, name="common_test_utilities"),
    Name("torch.testing._internal.opinfo.core.OpInfo", _SAMPLES),
    Name(DYNAMO, "imported before programs are forked", kind=Kind.NAME_ONLY),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The object of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
