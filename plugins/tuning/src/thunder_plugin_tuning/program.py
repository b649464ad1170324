"""A program with its inputs, compiled with lists of executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

import thunder
from thunder._inspection import compiled_program
from thunder.config.entry import Entry
from thunder.report.measured_gain import program_text
from thunder_core.errors import ThunderError
from thunder_core.passes.transform import Transform
from thunder_core.pytorch_internals import tree_leaves, tree_map, version_of
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_tuning.results import Results


@dataclass(frozen=True)
class Program:
    """What is tuned.

    Attributes:
        name: for messages.
        called: a function or an `nn.Module`, not compiled.
        args, kwargs: its inputs.
        train: whether a call computes gradients, and backward runs from the sum of the floating-point outputs.
        config: the configuration whose executors are chosen, as for `thunder.jit`.
    """

    name: str
    called: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    train: bool
    config: Any

    def compiled(self, executors: Sequence[Entry] | None, transforms: Sequence[Transform] = ()) -> CompiledProgram:
        """The program with these executors; None for those of the configuration. It is compiled by its first call.

        Args:
            transforms: to add to those of the configuration.
        """
        options: dict[str, Any] = {"tune": False, "compile": "ahead"} | (
            {} if executors is None else {"executors": list(executors)}
        )
        options |= {"transforms": list(transforms)} if transforms else {}
        return CompiledProgram(self, thunder.jit(self.called, config=self.config, **options))


class CompiledProgram:
    """A compiled program with its inputs.

    Args:
        program: the program.
        jitted: the result of `thunder.jit`.
    """

    def __init__(self, program: Program, jitted: Any) -> None:
        self.program = program
        self.jitted = jitted
        self._leaves: tuple[torch.Tensor, ...] = tuple(_differentiated(_given_tensors(program)))

    def compile(self) -> None:
        """Make the first call.

        Raises:
            ThunderError: the program cannot be compiled, or nothing was compiled for it.
            Exception: of the program.
        """
        self.call()
        if not self.entries:
            reasons = "; ".join(compiled_program(self.jitted).fallbacks) or "its programs cannot be cached"
            raise ThunderError(f"{self.program.name} was not compiled for later calls: {reasons}")
        self._leaves = tuple(_differentiated([*_given_tensors(self.program), *self.inputs().values()]))

    @property
    def entries(self) -> tuple[CacheEntry, ...]:
        """What was compiled."""
        compiled = compiled_program(self.jitted)
        return tuple([entry for cache in compiled.programs() for entry in cache.entries])

    def call(self) -> None:
        """One call, with backward if the program trains. Gradients are discarded."""
        self._outputs()
        self._discard_gradients()

    def results(self) -> Results:
        """Outputs and gradients of one call, by name; tensors are copies."""
        self._discard_gradients()
        outputs = self._outputs()
        results: dict[str, Any] = {}
        for index, leaf in enumerate(tree_leaves(outputs)):
            if isinstance(leaf, torch.Tensor):
                results[f"output {index}"] = leaf.detach().clone()
            elif isinstance(leaf, bool | int | float | complex | str):
                results[f"output {index}"] = leaf
        if self.program.train:
            for name, value in self.inputs().items():
                if value.requires_grad and value.is_leaf and value.grad is not None:
                    results[f"gradient of {name}"] = value.grad.detach().clone()
        self._discard_gradients()
        return results

    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors that the compiled programs read, by access path."""
        found: dict[str, torch.Tensor] = {}
        with torch.set_grad_enabled(self.program.train):
            for entry in self.entries:
                values = entry.prologue.function(self.program.args, self.program.kwargs) or ()
                for source, value in zip(entry.sources, values, strict=False):
                    if isinstance(value, torch.Tensor):
                        found.setdefault(source.describe(), value)
        return found

    @property
    def text(self) -> str:
        """What runs, equal for programs that run the same."""
        return "\n".join(map(program_text, self.entries))

    def _discard_gradients(self) -> None:
        for leaf in self._leaves:
            leaf.grad = None

    def _outputs(self) -> Any:
        program = self.program
        with torch.set_grad_enabled(program.train):
            outputs = self.jitted(*program.args, **program.kwargs)
            if program.train:
                self._backward(outputs)
        return outputs

    def _backward(self, outputs: Any) -> None:
        """Run backward from the sum of all floating-point outputs; a function may have done so itself.

        Raises:
            ThunderError: no output of a module requires grad.
        """
        tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if tensors:
            torch.autograd.backward(tensors, [torch.ones_like(tensor) for tensor in tensors])
        elif isinstance(self.program.called, torch.nn.Module):
            raise ThunderError(
                "no output of the program requires grad, so backward cannot run",
                advice=("tune it without gradients", "use parameters or inputs with requires_grad=True"),
            )


def _given_tensors(program: Program) -> list[torch.Tensor]:
    module = list(program.called.parameters()) if isinstance(program.called, torch.nn.Module) else []
    return [*module, *[leaf for leaf in tree_leaves((program.args, program.kwargs)) if isinstance(leaf, torch.Tensor)]]


def _differentiated(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Those that receive gradients, each once."""
    seen: set[int] = set()
    for tensor in tensors:
        if tensor.requires_grad and tensor.is_leaf and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


class State:
    """The state that calls change: tensors that they write, and random numbers.

    Args:
        compiled: a program that was called before. It is called once more, to find the tensors that it writes.
    """

    def __init__(self, compiled: CompiledProgram) -> None:
        tensors = [tensor for tensor in compiled.inputs().values() if not tensor.is_inference()]
        parameters = [(tensor, version_of(tensor)) for tensor in tensors if isinstance(tensor, torch.nn.Parameter)]
        copies = [_Copy.of(tensor) for tensor in tensors if not isinstance(tensor, torch.nn.Parameter)]
        compiled.call()
        written = [tensor for tensor, version in parameters if version_of(tensor) != version]
        self._saved = Saved([*written, *[copy.tensor for copy in copies if copy.is_outdated()]])

    def restore(self) -> None:
        """Give the tensors and the random state the values that they had when the object was created."""
        self._saved.restore()


class _Copy(NamedTuple):
    """A tensor with its version and its value.

    The version does not count all writes: PyTorch's batch norm writes to running statistics without counting.
    """

    tensor: torch.Tensor
    version: int
    value: torch.Tensor

    @staticmethod
    def of(tensor: torch.Tensor) -> _Copy:
        return _Copy(tensor, version_of(tensor), tensor.detach().clone())

    def is_outdated(self) -> bool:
        """Whether the tensor was written."""
        if version_of(self.tensor) != self.version:
            return True
        return self.tensor.layout is torch.strided and not torch.equal(self.tensor.detach(), self.value)


class Saved:
    """Copies of tensors, and of the random state of PyTorch."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._copies = [_Copy.of(tensor) for tensor in tensors]
        self._random = torch.get_rng_state()
        self._cuda_random = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore(self) -> None:
        """Give the tensors and the random state the values that they had."""
        with torch.no_grad():
            for copy in self._copies:
                if copy.is_outdated():
                    copy.tensor.copy_(copy.value)
        torch.set_rng_state(self._random)
        if self._cuda_random:
            torch.cuda.set_rng_state_all(self._cuda_random)


def without_graphs(value: Any) -> Any:
    """Inputs in which tensors that autograd computed are leaves, so that backward does not run through their graphs."""

    def detached(leaf: Any) -> Any:
        own = isinstance(leaf, torch.Tensor) and leaf.requires_grad and not leaf.is_leaf
        return leaf.detach().requires_grad_() if own else leaf

    return tree_map(detached, value)


@contextmanager
def kept(program: Program) -> Iterator[None]:
    """A context after which buffers of the module, tensors among the inputs, gradients and the random state are as
    before.
    """
    buffers = list(program.called.buffers()) if isinstance(program.called, torch.nn.Module) else []
    arguments = [leaf for leaf in tree_leaves((program.args, program.kwargs)) if isinstance(leaf, torch.Tensor)]
    saved = Saved([tensor for tensor in (*buffers, *arguments) if not tensor.is_inference()])
    leaves = list(_differentiated(_given_tensors(program)))
    gradients = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    try:
        yield
    finally:
        saved.restore()
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient
