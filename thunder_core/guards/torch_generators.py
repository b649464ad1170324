"""Random generators of PyTorch that a program reaches: while it is recorded, nothing may move them."""

from __future__ import annotations

import gc
import random
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.guards.code_names import CodeNames
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes, generator_identity

STATE_METHODS: Final = frozenset(
    {name for name in vars(torch.Generator) if not name.startswith("_")} - {"device"} | {"__reduce__", "__reduce_ex__"}
)
"""Methods that read or change the state of a generator, at once and without an operator."""
_OF_NEW_ONES: Final = frozenset({"manual_seed", "get_state", "initial_seed", "__reduce__", "__reduce_ex__"})
"""Those that do the same in each run to a generator that the run has made."""

_SET_STATE: Final = frozenset({"set_state", "graphsafe_set_state", "seed", "manual_seed", "set_offset"})
"""Those that set it, of a generator that code names them of."""

_SIZE_OF_SEED: Final = 8
_SIZE_OF_MARK: Final = 128

_marked: set[int] = set()
"""Generators, by identity, whose state is a mark, also those of programs that other threads record."""


@dataclass(slots=True)
class _Held:
    """A generator as it was met.

    Attributes:
        before: its state then.
        mark: the state that it has been given since, which nothing else has.
        seed: its seed when it was met.
    """

    generator: torch.Generator
    name: str
    before: torch.Tensor
    mark: torch.Tensor
    seed: int

    def is_moved(self) -> bool:
        """Whether its state is not the one that it was given."""
        return not _same(self.generator.get_state(), self.mark)

    def is_seeded(self) -> bool:
        """Whether it has another seed; drawing does not change that."""
        return self.generator.initial_seed() != self.seed


class TorchGenerators:
    """States of the default generators when the observation began, and of others when they were met.

    Lines draw random numbers only when the program runs. So a state that differs when the program has been recorded
    was changed by a call that no line repeats, such as one of a method by `functools.partial`. Generators other than
    the default ones are given states that nothing else has meanwhile, anew at each line that draws from them: then a
    call that sets the very state that the generator had before is noticed as well.

    The default ones belong to all threads. While others live, which may draw from them, they are compared as a whole
    only if code of the program names a method that sets a state; their seeds, which drawing leaves alone, always.
    """

    def __init__(self) -> None:
        defaults = {"torch.default_generator": torch.default_generator}
        if torch.cuda.is_initialized():
            for index, generator in enumerate(torch.cuda.default_generators):
                defaults[f"torch.cuda.default_generators[{index}]"] = generator
        self._defaults = [_held(generator, name) for name, generator in defaults.items()]
        self._others = threading.active_count() > 1
        self._may_be_set = False
        self._held: dict[int, _Held] = {}
        self._made: list[torch.Generator] = []
        self._marks: set[tuple[int, ...]] = set()
        self._moved: list[str] = []

    def watch(self, generator: torch.Generator, name: str) -> None:
        """Also compare a generator from now on."""
        identity = generator_identity(generator)
        if not self._is_known(generator) and identity not in _marked:
            _marked.add(identity)
            self._held[identity] = _held(generator, name)
            self.drawn(generator)

    def drawn(self, generator: torch.Generator) -> None:
        """A line takes random numbers from a generator, so that its state would be another one."""
        held = self._held.get(generator_identity(generator))
        if held is None:
            return
        if not _same(generator.get_state(), held.mark):
            self._moved.append(held.name)
        held.mark = _mark(generator)
        self._marks.add(_numbers(held.mark))

    def is_new(self, generator: torch.Generator) -> bool:
        """Whether nobody has drawn from a generator to which no path leads: the program has made it."""
        if self._is_known(generator) or generator_identity(generator) in _marked:
            return False
        seeded = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        return _same(generator.get_state(), seeded.get_state())

    def known(self, generator: torch.Generator) -> torch.Generator | None:
        """The object that a generator was first met as: calls of operators get it as another object each time."""
        for other in (*[held.generator for held in (*self._defaults, *self._held.values())], *self._made):
            if generator_identity(other) == generator_identity(generator):
                return other
        return None

    def made(self, generator: torch.Generator) -> None:
        """The program has made a generator: no path leads to it, and nothing should hold it when the program ends."""
        if self.known(generator) is None:
            self._made.append(generator)

    def is_repeated(self, generator: torch.Generator, method: str) -> bool:
        """Whether a call of a method, which no line repeats, is the same in each run: the run makes the generator."""
        if self._is_known(generator) or method not in _OF_NEW_ONES:
            return False
        self.made(generator)
        return True

    def moved(self) -> list[str]:
        """Names of the generators whose state was changed."""
        now = [held.name for held in self._held.values() if held.is_moved()]
        return list(dict.fromkeys([*self._moved, *[held.name for held in self._moved_defaults()], *now]))

    def _moved_defaults(self) -> list[_Held]:
        whole = self._may_be_set or self._is_alone()
        return [held for held in self._defaults if held.is_seeded() or (whole and held.is_moved())]

    def tells_state(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor that no line has made is a state of one of the generators."""
        if tensor.dtype is not torch.uint8 or tensor.device.type != "cpu" or tensor.ndim != 1:
            return False
        return _numbers(tensor) in self._marks or any(_same(tensor, held.mark) for held in self._defaults)

    def method_met(self, name: str) -> None:
        """The program has a bound method of a generator."""
        self._may_be_set |= name in _SET_STATE

    def asked(self, generator: torch.Generator, names: CodeNames) -> None:
        """Code with these names may ask a generator for its seed, which nothing notices if a call of C does so, or set
        the state of one that other threads may move as well.
        """
        self._may_be_set |= bool(names.attributes & _SET_STATE)
        if "initial_seed" in names.attributes and not any(chain[-1] == "initial_seed" for chain in names.chains):
            held = self._held.get(generator_identity(generator))
            self._moved.extend([] if held is None else [held.name])

    def restore(self) -> None:
        """Give each generator the state that it had."""
        for held in self._moved_defaults():
            held.generator.set_state(held.before)
        for held in self._held.values():
            held.generator.set_state(held.before)
            _marked.discard(generator_identity(held.generator))
        self._held.clear()

    def outliving(self) -> bool:
        """Whether something holds a generator that the program has made; ask when the program's objects are gone."""
        if self._is_shared():
            gc.collect()
        return self._is_shared()

    def handed_out(self, generator: torch.Generator) -> None:
        """The caller of the program gets this generator, anew from each run."""
        self._made = [made for made in self._made if made is not generator]

    def _is_shared(self) -> bool:
        # two references are those of the list and of the call; up to PyTorch 2.12 generators have no weak ones
        return any(sys.getrefcount(self._made[index]) > 2 for index in range(len(self._made)))

    def _is_alone(self) -> bool:
        self._others |= threading.active_count() > 1
        return not self._others

    def _is_known(self, generator: Any) -> bool:
        identity = generator_identity(generator)
        return identity in self._held or any(generator_identity(held.generator) == identity for held in self._defaults)


def _held(generator: torch.Generator, name: str) -> _Held:
    state = generator.get_state()
    return _Held(generator, name, state, state, generator.initial_seed())


def _mark(generator: torch.Generator) -> torch.Tensor:
    """Give a generator a state that nothing else has; on the CPU its seed stays, with which states begin."""
    other = torch.Generator(generator.device).manual_seed(random.SystemRandom().getrandbits(63))
    with DisableTorchFunction(), disable_current_modes():
        state = other.get_state()
        if generator.device.type == "cpu":
            state[:_SIZE_OF_SEED] = generator.get_state()[:_SIZE_OF_SEED]
        generator.set_state(state)
    return state


def _numbers(state: torch.Tensor) -> tuple[int, ...]:
    with DisableTorchFunction(), disable_current_modes():
        return tuple(state[:_SIZE_OF_MARK].tolist())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    with DisableTorchFunction(), disable_current_modes():
        return torch.equal(one, other)
