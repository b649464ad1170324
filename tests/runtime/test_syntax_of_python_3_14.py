"""What programs can say since Python 3.14: template strings, annotations with names that are not defined yet."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="older versions do not parse these programs")

PROGRAMS = {
    "values of a template": """
def program(x, held):
    template = t"{x.shape[0]} of {held.scale:>5}"
    return x * template.interpolations[1].value, template.strings, template.interpolations[1].format_spec
""",
    "tensor in a template": """
def program(x, held):
    return t"{x * held.scale!r}".interpolations[0].value + 1
""",
    "annotations without values": """
def program(x, held):
    def scaled(x: Undefined) -> AlsoUndefined:
        return x * held.scale
    return scaled(x)
""",
    "annotations that are read": """
import annotationlib

def program(x, held):
    def scaled(x: held.scale): ...
    return x * annotationlib.get_annotations(scaled)["x"]
""",
    "class with annotations": """
import dataclasses

def program(x, held):
    @dataclasses.dataclass
    class Pair:
        first: torch.Tensor
        second: float = held.scale
    return Pair(x).first * Pair(x).second
""",
    "exceptions without parentheses": """
def program(x, held):
    try:
        held.missing
    except AttributeError, KeyError:
        return x * held.scale
""",
    "placeholder": """
import functools

def program(x, held):
    return functools.partial(torch.sub, functools.Placeholder, held.scale)(x)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_follow_what_the_program_reads(name: str) -> None:
    defined: dict[str, Any] = {"torch": torch, "__name__": __name__}
    exec(compile(PROGRAMS[name], "<program>", "exec", dont_inherit=True), defined)  # without the import above
    program, held = defined["program"], SimpleNamespace(scale=2.0)
    compiled = thunder.jit(program)
    for scale in (2.0, 3.0, 2.0):
        held.scale = scale
        x = torch.randn(3)
        assert str(compiled(x, held)) == str(program(x, held))
    assert thunder.cache_misses(compiled) <= 2
    assert thunder.cache_hits(compiled) >= 1
