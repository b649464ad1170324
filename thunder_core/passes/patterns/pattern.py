"""A pattern: one way in which models spell a composite out."""

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
        composite: what is meant: a function with a row in the tables of symbols that has `Tag.COMPOSITE`.
        spelling: the computation as models write it, in torch functions. Its parameters are called like those of
            ``composite``. It may ask for the shapes and dtypes of its arguments, whose answers are those of the tensors
            that a program has in their place. A parameter with a default need not be there; those that it passes on
            as ``**options`` have the defaults of ``composite``.
        sample: an argument for each parameter of ``spelling``. For tensors text like that of printed traces,
            ``"bf16[2, 3]"``, in the dtype for which it makes the most conversions. For others a value that the
            spelling uses nowhere else.
        arguments: the further arguments of ``composite``.
    """

    composite: Callable[..., Any]
    spelling: Callable[..., torch.Tensor]
    sample: Mapping[str, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    defaults: Mapping[str, Any] = field(init=False)
    """The parameters of ``spelling`` that need not be there, with their values then."""

    def __post_init__(self) -> None:
        own = signature(self.spelling).parameters
        known = {**signature(self.composite).parameters, **own}
        parameters = [known[name] for name in self.sample]
        defaults = {one.name: one.default for one in parameters if one.default is not Parameter.empty}
        object.__setattr__(self, "defaults", defaults)
