"""Tables of options: what they say of each type, bound and default."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from thunder_core.plugins import ExecutorOptions
from thunder_testing.package.readme_options import option_rows, options_table, specific_options


class Kind(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Part(BaseModel):
    size: int


class Options(ExecutorOptions):
    truth: bool = True
    """A first line,
    and a second."""
    word: Literal["a|b", "c"] = "c"
    only: Literal[3] = 3
    kind: Kind = Kind.SMALL
    number: Annotated[float, Field(gt=0, lt=1)] = 0.5
    maybe: Annotated[int, Field(ge=2, le=8)] | None = None
    texts: tuple[str, ...] = ()
    choices: tuple[Literal["x", "y"], ...] = ("x",)
    names: dict[str, bool | int] = Field(default_factory=dict)
    part: Part = Part(size=2)
    whatever: Any = None
    made: int = Field(alias="other_name")


class WithoutSchema(ExecutorOptions):
    function: Callable[[int], int] | None = None


CELLS = {
    "truth": ("`true`, `false`", "`true`", "A first line, and a second."),
    "word": (r'`"a\|b"`, `"c"`', '`"c"`', ""),
    "only": ("`3`", "`3`", ""),
    "kind": ('`"small"`, `"large"`', '`"small"`', ""),
    "number": ("number, more than 0, less than 1", "`0.5`", ""),
    "maybe": ("integer, at least 2, at most 8, or `null`", "`null`", ""),
    "texts": ("list of strings", "`[]`", ""),
    "choices": ('list of `"x"`, `"y"`', '`["x"]`', ""),
    "names": ("mapping of names to `true`, `false`, or integer", "`{}`", ""),
    "part": ("mapping", '`{"size": 2}`', ""),
    "whatever": ("anything", "`null`", ""),
    "other_name": ("integer", "must be given", ""),
}


@pytest.mark.parametrize("name", CELLS)
def test_rows(name: str) -> None:
    assert option_rows(Options)[name] == f"| `{name}` | {' | '.join(CELLS[name])} |"


def test_only_own_options_have_rows() -> None:
    assert list(option_rows(Options)) == list(CELLS) == list(specific_options(Options))
    assert option_rows(ExecutorOptions) == {}


def test_types_without_a_schema_are_named() -> None:
    (row,) = option_rows(WithoutSchema).values()
    assert "Callable[[int], int]" in row


def test_table() -> None:
    rows = ["| `a` | text | `1` | A. |", "| `b` | text | `2` | B. |"]
    assert options_table(rows).splitlines() == ["| option | values | default | meaning |", "|---|---|---|---|", *rows]
