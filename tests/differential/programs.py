"""Write a random program from a seed."""

from __future__ import annotations

import random
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from tests.differential.statements import CHANGES, ROWS, SIZES

PRELUDE = Path(__file__).with_name("prelude.py").read_text()
CALLS = 4
SIZED_CALLS = 8
"""Of programs that read a tensor with another number of rows in each call."""
_GLOBALS = "global SCALE, COUNT, CURRENT"
_KINDS = sorted(ROWS)
_NAME = re.compile(r"\bt\d+\b")
_ASSIGNED = re.compile(r"\b(t\d+)(?:, \w+)? = ")


@dataclass(frozen=True)
class RandomProgram:
    """A program, and what its caller changes between calls.

    Attributes:
        seed: it was written from.
        statements: of the program, each a block of Python.
        results: names of the tensors that it returns.
        changes: before each call, a block of Python that changes the state.
        module: whether the program is the forward of a module instead of a function.
    """

    seed: int
    statements: tuple[str, ...]
    results: tuple[str, ...]
    changes: tuple[str, ...]
    module: bool

    @property
    def source(self) -> str:
        """The module that defines ``program(world, x, y)``, ``change(call, world, x, y)`` and ``Program``."""
        body = [_GLOBALS, "seen = []", *self.statements, f"return [{', '.join(self.results)}], seen"]
        lines = [PRELUDE, "", "def program(world, x, y):", textwrap.indent("\n".join(body), "    ")]
        lines += ["", "", "def change(call, world, x, y):", f"    {_GLOBALS}"]
        for call, text in enumerate(self.changes):
            lines += [f"    if call == {call}:", textwrap.indent(text, " " * 8)]
        lines += ["    return x, y", "", ""]
        lines += ["class Program(torch.nn.Module):", '    """The program as a module."""', ""]
        lines += ["    def forward(self, world, x, y):", "        return program(world, x, y)", ""]
        return "\n".join(lines)

    @property
    def has_autocast(self) -> bool:
        """Whether a statement computes under autocast."""
        return any("torch.autocast" in statement for statement in self.statements)

    def without(self, index: int) -> RandomProgram | None:
        """The program with one statement fewer; None if a later one uses a tensor that it defines."""
        after = self.statements[index + 1 :]
        needed = set(_NAME.findall("\n".join((*after, *self.results))))
        if needed.intersection(_ASSIGNED.findall(self.statements[index])):
            return None
        return replace(self, statements=self.statements[:index] + after)


def write(seed: int, kinds: tuple[str, ...] = ()) -> RandomProgram:
    """The program of ``seed``; statements of ``kinds`` alone, and pointwise ones, if any are named."""
    random_ = random.Random(f"{seed} {' '.join(kinds)}")
    tensors = ["x", "y", "world.weight", "world.frozen"]
    statements: list[str] = []
    chosen = list(kinds or random_.sample(_KINDS, random_.randint(2, 4)))
    for _ in range(random_.randint(2, 8)):
        kind = random_.choice([*chosen, "pointwise"])
        text = random_.choice(ROWS[kind])
        new = f"t{len(statements)}"
        statements.append(_filled(text, random_, tensors, new))
        if "{new}" in text:
            tensors.append(new)
    made = [name for name in tensors if name.startswith("t")] or ["x"]
    results = tuple(dict.fromkeys(random_.choices(made, k=random_.randint(1, 3))))
    sized = any("world.samples" in statement for statement in statements)
    changes = [_filled(random_.choice(CHANGES), random_, ["x"], "x") for _ in range(SIZED_CALLS if sized else CALLS)]
    if sized:
        changes = [
            f"number = {call}; {_filled(random_.choice(SIZES), random_, ['x'], 'x')}\n{change}"
            for call, change in enumerate(changes)
        ]
    return RandomProgram(seed, tuple(statements), results, tuple(changes), random_.random() < 0.3)


def _filled(text: str, random_: random.Random, tensors: list[str], new: str) -> str:
    recent = tensors[-4:]
    return text.format(
        t=random_.choice(recent),
        u=random_.choice(tensors),
        new=new,
        c=random_.choice([0.5, 2.0, -1.5, 3.0]),
        i=random_.randint(0, 2),
        j=random_.randint(0, 2),
        o=random_.choice(["on", "off"]),
    )
