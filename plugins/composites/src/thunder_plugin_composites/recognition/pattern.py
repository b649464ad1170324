"""Patterns: forms in which models write composites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A row of the pattern table.

    Attributes:
        composite: the composite; its row in the tables of symbols has `Tag.COMPOSITE`.
        spelling: the computation as models write it, in torch functions. Its parameters have the names of those of
            ``composite``. It may read the shapes and dtypes of its arguments, which are those of the matched tensors. A
            parameter with a default may be absent; parameters in ``**options`` have the defaults of ``composite``.
        sample: an argument for each parameter of ``spelling``. For tensors, an annotation as in printed traces, such as
            ``"bf16[2, 3]"``, with the dtype for which the spelling has the most casts. For other parameters, a value
            that the spelling uses nowhere else.
        arguments: further arguments of ``composite``.
    """

    composite: Callable[..., Any]
    spelling: Callable[..., torch.Tensor]
    sample: Mapping[str, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    defaults: Mapping[str, Any] = field(init=False)
    """The parameters of ``spelling`` that may be absent, with their defaults."""

    def __post_init__(self) -> None:
        of_spelling = signature(self.spelling).parameters
        known = {**signature(self.composite).parameters, **of_spelling}
        parameters = [known[name] for name in self.sample]
        defaults = {one.name: one.default for one in parameters if one.default is not Parameter.empty}
        object.__setattr__(self, "defaults", defaults)
