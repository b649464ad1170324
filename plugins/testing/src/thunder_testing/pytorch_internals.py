"""The private names of PyTorch that tests need and the compiler does not: what for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import PrivateNames, Row

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo as OpInfo

_SAMPLES = "samples of PyTorch's operators for tests of executors"

ROWS: Final = (
    Row("torch.testing._internal.common_methods_invocations.op_db", _SAMPLES),
    Row("torch.testing._internal.common_utils", _SAMPLES, name="common_test_utilities"),
    Row("torch.testing._internal.opinfo.core.OpInfo", _SAMPLES),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
