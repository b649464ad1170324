"""The states of PyTorch's random generators, which must not change while a program is recorded."""

from __future__ import annotations

import gc
import random
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes, generator_identity
from thunder_frontend.observe.code_names import CodeNames

STATE_METHODS: Final = frozenset(
    {name for name in vars(torch.Generator) if not name.startswith("_")} - {"device"} | {"__reduce__", "__reduce_ex__"}
)
"""Methods that read or change the state of a generator without an operator that is recorded."""
_OF_NEW_ONES: Final = frozenset({"manual_seed", "get_state", "initial_seed", "__reduce__", "__reduce_ex__"})
"""Methods that have the same effect in each run if the run creates the generator."""

_SET_STATE: Final = frozenset({"set_state", "graphsafe_set_state", "seed", "manual_seed", "set_offset"})
"""Methods that set the state."""

_SIZE_OF_SEED: Final = 8
_SIZE_OF_MARK: Final = 128

_marked: set[int] = set()
"""The identities of generators with a mark as state, also those of recordings in other threads."""


@dataclass(slots=True)
class _Held:
    """A generator and its state at the first visit.

    Attributes:
        before: this state.
        mark: the unique state that was assigned to it during recording.
        seed: its seed at the first visit.
    """

    generator: torch.Generator
    name: str
    before: torch.Tensor
    mark: torch.Tensor
    seed: int

    def is_moved(self) -> bool:
        """Whether its state is not the mark."""
        return not _same(self.generator.get_state(), self.mark)

    def is_seeded(self) -> bool:
        """Whether it has another seed. Random operations do not change the seed."""
        return self.generator.initial_seed() != self.seed


class TorchGenerators:
    """Detects changes of the states of random generators during recording.

    Random operations use generators only when the compiled program runs. If a state has changed after recording, a call
    that the compiled program does not repeat has changed it, such as a call of a method by `functools.partial`. While a
    program is recorded, each generator, except for the default ones, has a unique state, the mark, and gets a new one
    for each recorded random operation. So a call that sets the previous state of a generator is detected, too.

    All threads share the default generators. If there are other threads, the states of default generators are compared
    only if code of the program contains the name of a method that sets a state; the seeds are always compared.
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
        self._created: list[torch.Generator] = []
        self._marks: set[tuple[int, ...]] = set()
        self._moved: list[str] = []

    def watch(self, generator: torch.Generator, name: str) -> None:
        """Detect changes of a generator from now on."""
        identity = generator_identity(generator)
        if not self._is_known(generator) and identity not in _marked:
            _marked.add(identity)
            self._held[identity] = _held(generator, name)
            self.drawn(generator)

    def drawn(self, generator: torch.Generator) -> None:
        """A recorded operation uses a generator, which would change its state."""
        held = self._held.get(generator_identity(generator))
        if held is None:
            return
        if not _same(generator.get_state(), held.mark):
            self._moved.append(held.name)
        held.mark = _mark(generator)
        self._marks.add(_numbers(held.mark))

    def is_new(self, generator: torch.Generator) -> bool:
        """Whether the program created a generator, so that it has no path, and its state is that of its seed."""
        if self._is_known(generator) or generator_identity(generator) in _marked:
            return False
        seeded = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        return _same(generator.get_state(), seeded.get_state())

    def known(self, generator: torch.Generator) -> torch.Generator | None:
        """The first Python object of a generator; each call of an operator creates another one."""
        for other in (*[held.generator for held in (*self._defaults, *self._held.values())], *self._created):
            if generator_identity(other) == generator_identity(generator):
                return other
        return None

    def before(self, generator: torch.Generator) -> torch.Generator:
        """A new generator with the state of this one at its first visit; a default generator itself."""
        held = self._held.get(generator_identity(generator))
        return generator if held is None else torch.Generator(generator.device).set_state(held.before)

    def made(self, generator: torch.Generator) -> None:
        """The program created a generator, which must not outlive the program."""
        if self.known(generator) is None:
            self._created.append(generator)

    def is_repeated(self, generator: torch.Generator, method: str) -> bool:
        """Whether a call of a method, which is not recorded, has the same effect in each run."""
        if self._is_known(generator) or method not in _OF_NEW_ONES:
            return False
        self.made(generator)
        return True

    def moved(self) -> list[str]:
        """The names of the generators whose state has changed."""
        now = [held.name for held in self._held.values() if held.is_moved()]
        return list(dict.fromkeys([*self._moved, *[held.name for held in self._moved_defaults()], *now]))

    def _moved_defaults(self) -> list[_Held]:
        whole = self._may_be_set or self._is_alone()
        return [held for held in self._defaults if held.is_seeded() or (whole and held.is_moved())]

    def tells_state(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor, which no operation of the trace returned, is the state of a generator."""
        if tensor.dtype is not torch.uint8 or tensor.device.type != "cpu" or tensor.ndim != 1:
            return False
        return _numbers(tensor) in self._marks or any(_same(tensor, held.mark) for held in self._defaults)

    def visit_method(self, name: str) -> None:
        """The program reads a bound method of a generator."""
        self._may_be_set |= name in _SET_STATE

    def read_by(self, generator: torch.Generator, names: CodeNames) -> None:
        """Code with these names reads a generator: it may set its state, or read its seed by a call from C."""
        self._may_be_set |= bool(names.attributes & _SET_STATE)
        if "initial_seed" in names.attributes and not any(chain[-1] == "initial_seed" for chain in names.chains):
            held = self._held.get(generator_identity(generator))
            self._moved.extend([] if held is None else [held.name])

    def restore(self) -> None:
        """Restore the states of all generators."""
        for held in self._moved_defaults():
            held.generator.set_state(held.before)
        for held in self._held.values():
            held.generator.set_state(held.before)
            _marked.discard(generator_identity(held.generator))
        self._held.clear()

    def outliving(self) -> bool:
        """Whether a generator that the program created is alive after the program's objects were released."""
        if self._is_shared():
            gc.collect()
        return self._is_shared()

    def handed_out(self, generator: torch.Generator) -> None:
        """The program returns this generator; each run creates another one."""
        self._created = [created for created in self._created if created is not generator]

    def _is_shared(self) -> bool:
        # the list and the call have two references; up to PyTorch 2.12 there are no weak references to generators
        return any(sys.getrefcount(self._created[index]) > 2 for index in range(len(self._created)))

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
    """Assign a unique state to a generator. On the CPU the seed, with which the state begins, stays the same."""
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
