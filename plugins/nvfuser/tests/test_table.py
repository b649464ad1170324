"""The table of operators: what it covers, and that all of it is in nvFuser's interface."""

from __future__ import annotations

from typing import Any

import fake_nvfuser
import fake_operations
import pytest
import torch
from nvfuser_programs import compare, compiled, reasons, regions
from torch.testing._internal.common_methods_invocations import op_db

from thunder_plugin_nvfuser.table import TABLE, reason_against
from thunder_testing.opinfo import spelling
from thunder_testing.opinfo_samples import sample_inputs

aten = torch.ops.aten


def core_operators() -> list[Any]:
    """Those that PyTorch tags as core ATen; without such that write to their arguments or to `out`."""
    found = []
    for name in sorted(dir(aten)):
        packet = getattr(aten, name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags and not operator._schema.is_mutable:
                found.append(operator)
    return found


def test_core_operators(capsys: pytest.CaptureFixture[str]) -> None:
    operators = core_operators()
    covered = [operator for operator in operators if operator in TABLE]
    with capsys.disabled():
        print(f"\n{len(covered)} of {len(operators)} core-ATen operators have a row; {len(TABLE)} rows")
    assert len(covered) >= 120
    for operator in operators:
        if operator not in TABLE:
            assert str(getattr(operator, "overloadpacket", operator)) in reason_against(operator)


def test_the_tests_own_nvfuser_has_the_names_of_the_real_one() -> None:
    assert set(vars(fake_operations.OPERATIONS)) <= fake_nvfuser.NAMES
    with pytest.raises(AttributeError, match="no attribute 'softmax'"):
        fake_nvfuser.FusionDefinition().ops.softmax  # noqa: B018


ROWS = {str(getattr(operator, "overloadpacket", operator)).rpartition(".")[2].strip("_") for operator in TABLE}
OTHERS = {"nn.functional.gelu", "nn.functional.elu", "nn.functional.leaky_relu", "nn.functional.hardtanh"}
OTHERS |= {"nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.embedding", "softmax", "log_softmax"}
OTHERS |= {
    "nn.functional.pad",
    "true_divide",
    "std",
    "addcmul",
    "lerp",
    "masked_fill",
    "logsumexp",
    "nn.functional.silu",
}
OPERATORS = [op for op in op_db if op.name in ROWS | OTHERS]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

VIEWS = {"expand", "permute", "reshape", "select", "slice", "split_with_sizes"}
VIEWS |= {"squeeze", "t", "transpose", "unsqueeze", "view"}
"""Operators whose sample is a view of its argument, which needs no kernel."""
DECLINED = {"arange", "index_select", "nn.functional.pad.circular", "pow", "addmm.decomposed", "mm"}
DECLINED |= {"round.decimals_0", "round.decimals_3", "round.decimals_neg_3"}
"""Operators whose sample is declined in some dtype, for instance because it has empty tensors."""

SAMPLED = [
    pytest.param(operator, dtype, id=f"{operator.full_name}-{dtype}")
    for dtype in DTYPES
    for operator in (OPERATORS if dtype is torch.float32 else OPERATORS[DTYPES.index(dtype) % 2 :: 2])
    if dtype in operator.supported_dtypes("cpu")
]
"""Each operator that has a row, in float32; each second one in other dtypes."""


@pytest.mark.filterwarnings("ignore::UserWarning")  # of operators that are deprecated, and of empty statistics
@pytest.mark.parametrize(("operator", "dtype"), SAMPLED)
@pytest.mark.battery
def test_samples(operator: Any, dtype: torch.dtype) -> None:
    """A sample of an operator is computed in a region, as in eager."""
    sample = next(sample_inputs(operator, "cpu", dtype))
    program = compiled(spelling(operator.op), shape_only=True, matmul=True, linear=True)
    arguments = (sample.input, *sample.args)
    actual, expected = (run(*arguments, **sample.kwargs) for run in (program, operator.op))
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-4
    compare(actual, expected, tolerance, tolerance)
    failures = [reason for reason in reasons(program) if "refused" in reason or "written" in reason]
    assert not failures
    assert regions(program) or operator.name in VIEWS or operator.full_name in DECLINED
