"""Base classes of the options of executors and transforms. Plugins derive their pydantic models from these."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """Base class of all options: immutable and hashable; undeclared names are an error."""

    # The classes of this file do not describe their fields by docstrings, as plugins do: reading these from the source
    # takes 40 ms the first time, and this module is imported whenever a program is compiled.
    model_config = ConfigDict(frozen=True, extra="forbid")

    optional: bool = Field(
        default=False,
        description="Leave it out if it cannot be used, and list it in the report. Otherwise this is an error.",
    )

    def __hash__(self) -> int:
        """By content, also where an option is a mapping or a list."""
        return hash((type(self), self.model_dump_json()))


class ExecutorOptions(Options):
    """Options that every executor accepts."""

    include: tuple[str, ...] = Field(
        default=(),
        description="Patterns (`*`, `?`) of the operations that are offered to it; empty: all.",
    )
    exclude: tuple[str, ...] = Field(default=(), description="Patterns of operations that are never offered to it.")
    on_decline: Literal["next", "warn", "error"] = Field(
        default="next",
        description="What to do when it has an implementation of an operation, but not for this call of it.",
    )


class TransformOptions(Options):
    """Options that every transform accepts."""

    enabled: bool = Field(default=True, description="False leaves the transform out.")


for _base in (Options, ExecutorOptions, TransformOptions):
    _base.model_config["use_attribute_docstrings"] = True  # for the classes that are derived from it
