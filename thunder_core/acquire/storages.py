"""Numbers of the storages of a program's tensors."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.pytorch_internals import storage_identity


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
