"""Functions that create random generators, and that read or change the states of existing ones."""

from __future__ import annotations

from types import ModuleType
from typing import Final

import torch

from thunder_core.ir.symbol import Symbol, Tag


def new_generator(device: str, seed: int) -> torch.Generator:
    """A generator that the program creates: a new one in each call of the program."""
    return torch.Generator(device).manual_seed(seed)


def _symbol(module: ModuleType, name: str) -> Symbol:
    path = module.__name__.removesuffix(".random")
    return Symbol(f"{path}.{name}", getattr(module, name), tags=frozenset({Tag.RANDOM}))


# They draw no numbers but change the states of generators.
MANUAL_SEED: Final = _symbol(torch.random, "manual_seed")
GET_RNG_STATE: Final = _symbol(torch.random, "get_rng_state")
SET_RNG_STATE: Final = _symbol(torch.random, "set_rng_state")
NEW_GENERATOR: Final = Symbol(
    "thunder_core.symbols.generators.new_generator", new_generator, tags=frozenset({Tag.RANDOM})
)
_OF_CUDA: Final = {
    name: _symbol(torch.cuda.random, name)
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")
}
CUDA_STATE: Final = _symbol(torch.cuda.random, "get_rng_state")
WRITES: Final = (
    (torch.random, "manual_seed", MANUAL_SEED),
    (torch.random, "set_rng_state", SET_RNG_STATE),
    *[(torch.cuda.random, name, symbol) for name, symbol in _OF_CUDA.items()],
)
"""Functions without a result, with their modules and names."""
READS: Final = ((torch.random, "get_rng_state", GET_RNG_STATE), (torch.cuda.random, "get_rng_state", CUDA_STATE))
"""Functions that return a state."""
STATEFUL: Final = frozenset({symbol for _, _, symbol in (*WRITES, *READS)} | {NEW_GENERATOR})

RESTORED: Final = frozenset({MANUAL_SEED, SET_RNG_STATE, NEW_GENERATOR})
"""Those that change only states which `generator_states` returns, or that of a generator of the program's own."""


def generator_states() -> tuple[torch.Tensor, ...]:
    """The states of PyTorch's default generators: of the CPU, and of GPUs in use."""
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), *of_gpus


def set_generator_states(states: tuple[torch.Tensor, ...]) -> None:
    """Give the default generators the states that `generator_states` returned."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(list(states[1:]))
