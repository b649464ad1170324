"""The trace of a program that is still being recorded."""

from __future__ import annotations

import keyword
import re
import sys
import warnings
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, attention_kernels, current_context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.literals import RESERVED_NAMES
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import storage_identity
from thunder_core.symbols.autocast import CLEAR_CACHE
from thunder_core.tracing.user_frames import user_location


class Names:
    """Hands out Python identifiers, each once."""

    # names that a printed program and its prologue need for themselves
    RESERVED = RESERVED_NAMES | {"args", "kwargs", "len"}

    def __init__(self) -> None:
        self._count = 0
        self._taken: set[str] = set()

    def intermediate(self) -> str:
        """The next ``t0``, ``t1``, ... for a computed value."""
        while True:
            name = f"t{self._count}"
            self._count += 1
            if name not in self._taken:
                return name

    def for_input(self, description: str) -> str:
        """An identifier that resembles an access path such as ``model.layers[0].weight``."""
        stem = re.sub(r"\W+", "_", description).strip("_").lower() or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem) or stem in self.RESERVED or re.fullmatch(r"[ts]\d+", stem):
            stem = f"input_{stem}"
        name, suffix = stem, 1
        while name in self._taken:
            name, suffix = f"{stem}_{suffix}", suffix + 1
        self._taken.add(name)
        return name


class Storages:
    """Gives each storage a number, and knows the storages of fakes by their addresses.

    Attributes:
        constant: those whose content depends on no input and on no random state.
        written: those that a call wrote.
        entangled: those of which tensors show parts that depend on values, so that nothing may write to them.
    """

    def __init__(self) -> None:
        self.constant: set[int] = set()
        self.written: set[int] = set()
        self.entangled: set[int] = set()
        self._next = 0
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def new(self, fake: torch.Tensor | None = None) -> int:
        """A new number, which the storage of ``fake`` gets if one is given."""
        number = self._next
        self._next += 1
        if fake is not None and fake.layout is torch.strided:
            self.bind(fake, number)
        return number

    def bind(self, fake: torch.Tensor, number: int) -> None:
        """Remember the number of a fake's storage, which stays alive: no other storage gets its address."""
        storage = fake.untyped_storage()
        self._numbers[storage_identity(storage)] = number
        self._alive.append(storage)

    def number(self, address: int) -> int | None:
        """The number of the storage at an address (of `storage_address`); None for an unknown one."""
        return self._numbers.get(address)


_MAY_ATTEND: Final = frozenset({Tag.ATTENTION, Tag.OPAQUE})


class OpenTrace:
    """A trace to which lines are added, in the order in which the program makes the calls.

    Attributes:
        names: of its values.
        storages: of its tensors.
        lines: the bound symbols so far (of the innermost region while a higher-order call is recorded).
        outer_lines: those of the regions around it and of the program, the outermost first.
        ambient: the modes that the whole program runs under.
        kernels: of attention, that the caller of the program allows.
        stdout, stderr: the standard streams before the program ran.
        used_autocast: whether a line was recorded under autocast since a region of autocast ended last.
        left_autocast: whether a region of autocast ended after such lines, and none was recorded since.
        is_region_cut: whether an exception left a region or a function of the user's that is one line: no line tells
            what was done before.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.storages = Storages()
        self.lines: list[BoundSymbol] = []
        self.outer_lines: list[list[BoundSymbol]] = []
        self.ambient = current_context()
        self.kernels = attention_kernels()
        self._warning_filters = warnings.filters, tuple(warnings.filters)
        self.stdout, self.stderr = sys.stdout, sys.stderr
        self.used_autocast = False
        self.left_autocast = False
        self.is_region_cut = False

    def outwards(self) -> list[list[BoundSymbol]]:
        """The lines of the innermost region, of the regions around it, and of the program, in this order."""
        return [self.lines, *reversed(self.outer_lines)]

    def context_of(self, symbol: Symbol) -> Context:
        """The modes of a call that is made now, with the kernels of attention if the program chose these for it."""
        context = current_context()
        if symbol.tags & _MAY_ATTEND and (kernels := attention_kernels()) != self.kernels:
            return replace(context, attention=kernels)
        return context

    def has_own_warning_filters(self) -> bool:
        """Whether the program has changed `warnings.filters`, or put others in their place."""
        filters, content = self._warning_filters
        return warnings.filters is not filters or tuple(filters) != content

    def end_autocast_region(self) -> None:
        """The program has left a region of autocast: PyTorch forgets what it converted."""
        self.left_autocast |= self.used_autocast
        self.used_autocast = False

    def begin_autocast_region(self) -> None:
        """A line under autocast is to be recorded, which may be the first of another region."""
        self.used_autocast = True
        if self.left_autocast:
            self.left_autocast = False
            self.lines.append(BoundSymbol(CLEAR_CACHE, (), {}, None, Effects(external=True), None, user_location()))

    def own_context(self, context: Context) -> Context | None:
        """The modes of a line as it keeps them: None for those of the whole program."""
        return context if context != self.ambient else None

    def write(
        self,
        symbol: Symbol,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any = None,
        effects: Effects = PURE,
    ) -> None:
        """Add the line of a call that the program makes now, under the modes of now.

        Args:
            args, kwargs, output: with proxies and literals, as in a `BoundSymbol`.
        """
        context = self.own_context(current_context())
        self.lines.append(BoundSymbol(symbol, args, kwargs, output, effects, context, user_location()))
