"""`thunder.save`: the programs of a compiled function or module, converted to text."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from thunder_core.checks.originals import uncompiled
from thunder_core.checks.source import Source, is_argument
from thunder_core.errors import OptionError, RunEagerly, TraceSyntaxError, UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import render_trace
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.functionalize.result import FromComputation, FromEpilogue, FromInput
from thunder_core.passes.grouped_copies import with_grouped_copies
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.differentiated import DifferentiatedProgram
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.tracing.frames import warn_user
from thunder_saving.archive import FORMAT, environment, write_archive
from thunder_saving.guards import Paths, guard_texts, literal_of
from thunder_saving.operations import plugin_of
from thunder_saving.results import result_text
from thunder_saving.state import StateTensor, modules_of, state_table, tensors_of
from thunder_saving.verified_source import Verifier, verified

__all__ = ["save"]

_MOST_SUBSETS: Final = 3
"""Up to this number of differentiable results, backward is saved for every subset of their gradients."""
_ARGUMENTS = tuple[tuple[Any, ...], dict[str, Any]]


def save(compiled: ProgramCache, path: str | Path, calls: Sequence[_ARGUMENTS] = ()) -> None:
    """Write the compiled programs of a function or module to a file.

    Args:
        compiled: the cache of the programs.
        path: the file; one that exists is replaced.
        calls: positional and keyword arguments of calls. The program of each is compiled, under the present modes,
            without running it. The programs that are compiled already are saved as well.

    Raises:
        OptionError: there is no program.
        UnsupportedError: a program has an operation, a result or a guard that no file can have; with its location.
    """
    wanted = [_entry_for(compiled, *arguments) for arguments in calls]
    entries = list(dict.fromkeys([*wanted, *compiled.entries]))
    if not entries:
        raise OptionError(
            f"{compiled.name} has no compiled program to save", advice=("pass example=..., or call it once first",)
        )
    module = uncompiled(compiled.function)
    writer = _Writer(compiled.name, module if isinstance(module, torch.nn.Module) else None)
    for entry in entries:
        try:
            writer.add(entry)
        except UnsupportedError as error:
            if entry in wanted or not wanted:
                raise
            warn_user(f"thunder.save leaves out a program of {compiled.name}: {error.problem}", UserWarning)
    writer.write(path)


def _entry_for(compiled: ProgramCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CacheEntry:
    try:
        return compiled.compiled_entry(args, kwargs)
    except RunEagerly as needed:
        raise UnsupportedError(
            f"{compiled.name} cannot be saved, as eager PyTorch runs this call: {needed}",
            advice=("change what the reason names, or save a part of the model that does without it",),
        ) from needed


@dataclass
class _Writer:
    """Collects the programs of a file.

    Attributes:
        name: of the function or module.
        module: the module that was compiled; None for a function.
    """

    name: str
    module: torch.nn.Module | None
    texts: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    tensors: list[StateTensor] = field(default_factory=list)
    distributions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.module is not None:
            self.tensors = tensors_of(self.module)
        self._names = {id(tensor.value): tensor.name for tensor in reversed(self.tensors)}

    def write(self, path: str | Path) -> None:
        rows, stored = state_table(self.tensors)
        modules = {"": False} if self.module is None else modules_of(self.module)
        manifest = {
            "format": FORMAT,
            "name": self.name,
            "environment": environment(self.distributions),
            "modules": modules,
            "state": rows,
            "programs": self.rows,
        }
        write_archive(path, manifest, self.texts, stored)

    def add(self, entry: CacheEntry) -> None:
        """Convert one program. Raises UnsupportedError."""
        _check_entry(entry)
        before = dict(self.texts), list(self.tensors), dict(self._names)
        try:
            self.rows.append(self._row(entry, f"programs/{len(self.rows)}"))
        except BaseException:
            self.texts, self.tensors, self._names = before
            raise

    def _row(self, entry: CacheEntry, folder: str) -> dict[str, Any]:
        program = entry.program
        inputs = program.final.inputs
        values = [None if is_argument(source) else source.read((), {}) for source in entry.sources]
        states: dict[int, str] = {}
        for proxy, source, value in zip(inputs, entry.sources, values, strict=True):
            if isinstance(value, torch.Tensor):
                states[id(source)] = self._state_name(proxy.name, value)
        constants = {tensor.name: tensor.value for tensor in self.tensors if tensor.kind == "constant"}
        paths = Paths(states, self._names, constants)
        names = {id(source): proxy.name for proxy, source in zip(inputs, entry.sources, strict=True)}
        guards = guard_texts(entry.prologue, names, paths)
        row: dict[str, Any] = {
            "kind": _kind(entry),
            "inputs": [
                {"name": proxy.name, "path": self._path(proxy, source, value, paths, program.traces[0])}
                for proxy, source, value in zip(inputs, entry.sources, values, strict=True)
            ],
            "guards": guards.texts,
            "assumptions": guards.assumptions,
            "grad_enabled": program.traces[0].context.grad_enabled,
            "autocast": bool(program.traces[0].context.autocast),
            "random": any(op.effects.random for op in program.final.symbols),
            "sizes": [] if entry.sizes is None else list(entry.sizes.hints),
            "checks_values": bool(entry.guesses),
            "operations": len(program.final.symbols),
        }
        self._add_text(f"{folder}/forward.py", program.final, tuple(row["sizes"]) if entry.varies else ())
        row["main"] = program.final.name
        self._add_run(entry, folder, row)
        if program.differentiated is not None:
            row["differentiation"] = self._differentiation(program.differentiated, folder)
        return row

    def _state_name(self, name: str, value: torch.Tensor) -> str:
        known = self._names.get(id(value))
        if known is not None:
            return known
        taken = {tensor.name.partition(".")[0] for tensor in self.tensors}
        if self.module is not None:
            taken |= set(self.module._modules)
        new = name if name not in taken else next(n for i in itertools.count(1) if (n := f"{name}_{i}") not in taken)
        kind = "parameter" if isinstance(value, torch.nn.Parameter) and value.is_leaf else "constant"
        self.tensors.append(StateTensor(new, kind, value))
        self._names[id(value)] = new
        return new

    def _path(self, proxy: Any, source: Source, value: Any, paths: Paths, trace: Trace) -> list[Any]:
        """The path of an input as text."""
        path = paths.text(source)
        if path is not None:
            return path
        reader = next((op for op in trace.symbols if any(one.name == proxy.name for one in op.inputs())), None)
        called = "" if reader is None else f" of {reader.symbol.name}"
        location = None if reader is None else reader.location
        if isinstance(proxy, NumberProxy):
            raise UnsupportedError(
                f"{source.describe()}, an argument{called}, is a number that varies between calls, and no argument of "
                "the program",
                location=location,
                advice=("pass it as an argument, or compile with dynamic=False",),
            )
        kind = getattr(proxy, "type_name", "object") if value is None else type(value).__qualname__
        raise UnsupportedError(
            f"{source.describe()}, an argument{called}, is an object of type {kind}, which no file can have",
            location=location,
            advice=("pass tensors, numbers, strings, and tuples, lists or dicts of these",),
        )

    def _add_run(self, entry: CacheEntry, folder: str, row: dict[str, Any]) -> None:
        """The function that runs the computation and the epilogue, and creates the result."""
        functional = entry.program.functional
        sizes = [] if entry.sizes is None else list(entry.sizes.hints)
        defined = {} if entry.sizes is None else dict.fromkeys(entry.sizes.defined)
        lines = []
        if sizes and entry.varies:
            lines.append(f"{', '.join(sizes)}, = inputs[{-len(sizes)}:]")
        elif sizes:
            assert entry.sizes is not None
            lines.append(f"{', '.join(sizes)}, = {tuple(entry.sizes.hints.values())}")
        lines.append("values = computation(*inputs)")
        places = {proxy.name: place for place, proxy in enumerate(entry.program.traces[0].output)}
        lines += [f"{name} = {_place(functional.results[places[name]])}" for name in defined]
        if functional.epilogue is not None:
            taken = (*(sizes if entry.varies else ()), *defined)
            arguments = [*[_place(argument) for argument in functional.epilogue_arguments], *taken]
            lines.append(f"after = epilogue({', '.join(arguments)})")
            epilogue = with_grouped_copies(functional.epilogue)
            self._add_text(f"{folder}/epilogue.py", epilogue, taken)
            row["epilogue"] = epilogue.name
        lines += [f"o{index} = {_place(source)}" for index, source in enumerate(functional.results)]
        self.texts[f"{folder}/run.py"] = result_text(entry.result, "def run(inputs, args, kwargs):", lines)

    def _differentiation(self, program: DifferentiatedProgram, folder: str) -> dict[str, Any]:
        joint, saved = program.joint, program.partitioned.saved
        if program.plain:
            raise UnsupportedError(
                "the program has calls of __torch_function__ of its inputs' classes",
                advice=("compile and save the program for plain tensors",),
            )
        backwards: list[dict[str, Any]] = []
        for present, wanted in _variants(program):
            backward = program.backward(present, wanted, ())
            if (present, wanted) not in program.variants() or backward.trace is None:
                raise UnsupportedError(
                    "the backward of the program for some of its gradients is for one size",
                    advice=("compile it with dynamic=False",),
                )
            name = f"{folder}/backward{f'_{len(backwards)}' if backwards else ''}.py"
            self._add_text(name, backward.trace, program.symbols)
            backwards.append(
                {
                    "member": name,
                    "main": backward.trace.name,
                    "present": list(present),
                    "wanted": list(wanted),
                    "used": list(backward.used),
                    "consumed": sorted(backward.consumed),
                }
            )
        tensors = [proxy for proxy in saved if isinstance(proxy, TensorProxy)]
        return {
            "outputs": program.outputs,
            "saved": len(saved),
            "tensors": program.tensors,
            "saved_inputs": sorted(program.saved_inputs),
            "constant": list(joint.constant),
            "cotangent_of": list(joint.cotangent_of),
            "gradient_of": program.gradient_of,
            "edges": program.edges,
            "related": [[output, list(others)] for output, others in program.related.items()],
            "default_dtype": str(program.default_dtype),
            "defined": program.defined,
            "saved_strides": [[str(size) for size in proxy.stride] for proxy in tensors],
            "cotangent_strides": [[str(size) for size in proxy.stride] for proxy in joint.cotangents],
            "settings": literal_of(_settings()),
            "backwards": backwards,
        }

    def _add_text(self, name: str, trace: Trace, sizes: tuple[str, ...]) -> None:
        """Print a trace, and verify that it can be read."""
        printed = render_trace(trace, sizes=sizes)
        if printed.local_targets:
            raise _not_importable(trace, printed.local_targets)
        verifier = Verifier(name)
        try:
            verified(printed.source, name, verifier)
        except TraceSyntaxError as error:
            raise UnsupportedError(
                f"the program has an operation that no file can have: {error.problem.partition(': ')[2]}",
                location=_location(printed.locations, error.lineno),
                advice=("PyTorch's operators, and operations of installed plugins, can be saved",),
            ) from error
        self.texts[name] = printed.source
        for function in {op.symbol.name for part in trace.programs() for op in part.symbols}:
            self._note_plugin(function)

    def _note_plugin(self, function: str) -> None:
        if function.startswith(("torch.", "thunder_core.", "operator.", "math.")) or "." not in function:
            return
        if plugin_of(function) is not None:
            package = function.partition(".")[0]
            for distribution in importlib.metadata.packages_distributions().get(package, ()):
                self.distributions[distribution] = importlib.metadata.version(distribution)


def _settings() -> tuple[Any, ...]:
    from thunder_core.runtime.own_state import kernel_settings

    return kernel_settings()


def _kind(entry: CacheEntry) -> str:
    if entry.program.differentiated is not None:
        return "training"
    return "inference" if entry.program.as_recorded is None else "as recorded"


def _place(source: Any) -> str:
    match source:
        case FromInput(index=index):
            return f"inputs[{index}]"
        case FromComputation(index=index):
            return f"values[{index}]"
        case FromEpilogue(index=index):
            return f"after[{index}]"
    text = literal_of(source.value)
    if text is None:
        raise UnsupportedError(
            f"a result of the program is {source.value!r:.100}, which no file can have",
            advice=("return tensors, numbers, and tuples, lists or dicts of these",),
        )
    return text


def _check_entry(entry: CacheEntry) -> None:
    """Raise UnsupportedError for a program that is for one call."""
    reasons = [
        (entry.raised is not None, f"it raises {type(entry.raised).__name__}"),
        (bool(entry.random_states), f"it takes values from {', '.join(entry.random_states)}"),
        (bool(entry.uncopied), f"it returns objects that cannot be copied ({', '.join(entry.uncopied)})"),
        (entry.unfit is not None, f"a guard does not hold for its own call ({entry.unfit})"),
        (bool(entry.groups), f"it communicates in the process groups {', '.join(entry.groups)}"),
    ]
    for applies, reason in reasons:
        if applies:
            raise UnsupportedError(
                f"the program cannot be saved: {reason}",
                advice=("change what the reason names, or save a part of the model that does without it",),
            )


def _variants(program: DifferentiatedProgram) -> list[tuple[tuple[bool, ...], tuple[bool, ...]]]:
    """The cotangents and gradients for which backward is saved: those that have run, and the likely ones."""
    count, gradients = len(program.joint.cotangents), len(program.joint.differentiable)
    every = (True,) * gradients
    if count <= _MOST_SUBSETS:
        subsets = [one for one in itertools.product((True, False), repeat=count) if any(one)]
    else:
        subsets = [(True,) * count, *[tuple(index == other for other in range(count)) for index in range(count)]]
    return list(dict.fromkeys([*[(subset, every) for subset in subsets], *program.variants()]))


def _not_importable(trace: Trace, targets: Mapping[str, Callable[..., Any]]) -> UnsupportedError:
    """The error for a call of a compiled region, or of a function without a name."""
    called = set(map(id, targets.values()))
    op: BoundSymbol = next(one for part in trace.programs() for one in part.symbols if id(one.symbol.target) in called)
    executor = op.symbol.executor
    location = op.location or next((part.location for part in op.parts if part.location is not None), None)
    if executor is None:
        return UnsupportedError(
            f"the program calls {op.symbol.name}, which is no operator",
            location=location,
            advice=("register it by torch.library.custom_op, and import that module before thunder.load",),
        )
    name = getattr(executor, "name", executor)
    return UnsupportedError(
        f"the program calls {op.symbol.name} of the executor {name}, which has no portable form",
        location=location,
        advice=(
            f"compile without it: thunder.jit(model, executors=[...]), with executors other than {name}; [] for none",
        ),
    )


def _location(locations: Mapping[int, SourceLocation], line: int | None) -> SourceLocation | None:
    return locations.get(line or 0)
