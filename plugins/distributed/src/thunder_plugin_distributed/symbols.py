"""The symbols that the plugin defines, and their derivatives."""

from __future__ import annotations

from typing import Final

import thunder_plugin_distributed
from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row
from thunder_plugin_distributed import collectives as _  # noqa: F401 - defines the operators
from thunder_plugin_distributed.sharded_parameters import arrived_rule, gather_rule, owners_rule, unsharded_rule

_FUNCTIONS: Final = f"{thunder_plugin_distributed.__name__}.sharded_parameters"
_OPERATORS: Final = "torch.ops.thunder_distributed"
_PARAMETERS: Final = "(shards, lengths, sharding, *, accumulated=(), parts=(), collectors=())"
_FUNCTIONAL: Final = "torch.ops._c10d_functional"
_CALLS: Final = {
    Tag.COLLECTIVE: (
        "all_reduce(input, reduce_op, group_name)",
        "reduce_scatter_tensor(input, reduce_op, group_size, group_name)",
        "all_gather_into_tensor(input, group_size, group_name)",
    ),
    Tag.WAIT: ("wait_tensor(tensor)",),
}
"""PyTorch's functional collectives, which DTensor calls."""


def _operator(name: str, parameters: str, *tags: Tag) -> Row:
    return row(f"{_OPERATORS}.{name}({parameters})", f"{_OPERATORS}.{name}.default", method=False, tags=tags)


ROWS: Final[list[Row]] = [
    row(f"{_FUNCTIONS}.gather{_PARAMETERS}", method=False, tags=(Tag.COLLECTIVE,)),
    row(f"{_FUNCTIONS}.gather_again{_PARAMETERS}", method=False, tags=(Tag.COLLECTIVE, Tag.REPEATED)),
    row(f"{_FUNCTIONS}.unsharded{_PARAMETERS}", method=False),
    row(f"{_FUNCTIONS}.owners{_PARAMETERS}", method=False),
    row(f"{_FUNCTIONS}.arrived(gathered)", method=False, tags=(Tag.WAIT,)),
    row(f"{_FUNCTIONS}.arrived_again(gathered)", method=False, tags=(Tag.WAIT, Tag.REPEATED)),
    _operator("all_gather", "shards, size, group", Tag.COLLECTIVE),
    _operator("reduce_scatter", "wholes, operation, size, group", Tag.COLLECTIVE),
    _operator("all_reduce", "values, operation, group", Tag.COLLECTIVE),
    _operator("wait", "value", Tag.WAIT),
    *[
        row(f"{_FUNCTIONAL}.{call}", f"{_FUNCTIONAL}.{call.partition('(')[0]}.default", method=False, tags=(tag,))
        for tag, calls in _CALLS.items()
        for call in calls
    ],
]

RULES: Final = {
    f"{_FUNCTIONS}.gather": gather_rule,
    f"{_FUNCTIONS}.gather_again": gather_rule,
    f"{_FUNCTIONS}.unsharded": unsharded_rule,
    f"{_FUNCTIONS}.owners": owners_rule,
    f"{_FUNCTIONS}.arrived": arrived_rule,
    f"{_FUNCTIONS}.arrived_again": arrived_rule,
}
