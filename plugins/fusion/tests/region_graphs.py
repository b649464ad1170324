"""Random lines without a program: what reads, views, writes, draws and acts; and a machine that runs them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import PURE, WAITS, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol

CPU = torch.device("cpu")
KINDS = ("a", "b", "c", "product", "view", "write", "draw", "act", "send", "other_send", "wait")
SYMBOLS = {kind: Symbol(kind, len) for kind in KINDS}
EFFECTS = {"draw": Effects(random=True), "act": Effects(external=True)}
CHANNELS = {"send": "0", "other_send": "1", "wait": WAITS}
EFFECTS |= {kind: Effects(channels=(channel,)) for kind, channel in CHANNELS.items()}


def tensor(name: str, storage: int) -> TensorProxy:
    return TensorProxy(name, (4,), (1,), torch.float32, CPU, False, storage)


def random_lines(seed: int, count: int, kinds: Sequence[str] = KINDS, near: int = 8) -> list[BoundSymbol]:
    """``count`` lines of the given kinds; most arguments are among the last ``near`` values."""
    draw = random.Random(seed)
    values = [tensor(f"i{number}", number) for number in range(3)]
    lines = []
    for number in range(count):
        kind = draw.choice(kinds)
        recent = values[-near:] if draw.random() < 0.8 else values
        arguments = tuple(draw.choice(recent) for _ in range(1 if kind == "view" else draw.choice((1, 2, 2))))
        shares = kind in ("view", "write")
        output = tensor(f"t{number}", arguments[0].storage if shares else 10 + number)
        effects = Effects(mutates=(arguments[0].name,)) if kind == "write" else EFFECTS.get(kind, PURE)
        lines.append(BoundSymbol(SYMBOLS[kind], arguments, {}, output, effects))
        values.append(output)
    return lines


def random_labels(seed: int, lines: Iterable[BoundSymbol]) -> list[int | None]:
    """Elementwise lines and views are fused by one executor or by another, the others by none."""
    draw = random.Random(seed)
    second = draw.choice((0.0, 0.3))
    fusible = {"a", "b", "c", "view"}
    return [int(draw.random() < second) if line.symbol.name in fusible else None for line in lines]


@dataclass
class Machine:
    """Runs lines on values that say how they were computed.

    Attributes:
        memories: by storage, what is there.
        seen: what each line read, by the name of its result.
        acts: what lines with effects outside did, in order.
        sent: what was communicated, in order, by kind.
    """

    memories: dict[int, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    acts: list[Any] = field(default_factory=list)
    sent: dict[str, list[Any]] = field(default_factory=dict)
    drawn: int = 0

    def run(self, lines: Iterable[BoundSymbol]) -> Machine:
        """Run them one by one; returns itself."""
        defined = {"i0", "i1", "i2"}
        for line in lines:
            kind, output = line.symbol.name, line.output
            assert {proxy.name for proxy in line.inputs()} <= defined
            defined.add(output.name)
            read = tuple([self.memories.get(proxy.storage, proxy.storage) for proxy in line.args])
            self.seen[output.name] = read
            if kind == "draw":
                self.drawn += 1
            if kind == "act":
                self.acts.append(hash((read, *[(name, *sent) for name, sent in sorted(self.sent.items())])))
            if kind in CHANNELS:
                self.sent.setdefault(kind, []).append(hash((read, len(self.acts))))
            if kind != "view":
                self.memories[output.storage] = hash((kind, read, self.drawn if kind == "draw" else None))
        return self


def layers(count: int, stray: bool = True) -> tuple[list[BoundSymbol], list[int | None]]:
    """Equal layers of fused lines around products. With ``stray``, the first also makes what all of them read, and the
    last ends in lines of its own."""
    lines: list[BoundSymbol] = []

    def add(kind: str, *arguments: TensorProxy) -> TensorProxy:
        output = tensor(f"t{len(lines)}", 10 + len(lines))
        lines.append(BoundSymbol(SYMBOLS[kind], arguments, {}, output, PURE))
        return output

    x, mask = tensor("i0", 0), tensor("i1", 1)
    if stray:
        mask = add("b", add("c", mask))
    for _ in range(count):
        x = add("product", add("a", add("a", add("a", x), mask), x))
        x = add("b", add("c", add("b", x)), x)
        x = add("product", x)
    if stray:
        y = add("a", add("a", add("a", x), mask), x)
        add("b", add("c", y))
    return lines, [None if line.symbol.name == "product" else 0 for line in lines]


def groupings(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """All ways to divide items into groups."""
    if not items:
        yield []
        return
    first, *others = items
    for grouping in groupings(others):
        yield [[first], *grouping]
        for place, group in enumerate(grouping):
            yield [*grouping[:place], [first, *group], *grouping[place + 1 :]]
