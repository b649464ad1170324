"""`thunder.load`: saved programs as a module, without the compiler.

The call of a `LoadedProgram` finds the program whose guards hold, by the prologues and the dispatcher of compiled
modules. It never compiles: a call that no program covers raises an error that lists what is covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from thunder_core.checks.dispatch import Dispatcher
from thunder_core.checks.prologue import Prologue
from thunder_core.checks.source import Source
from thunder_core.errors import SavedProgramError, ThunderError, UnsupportedError, WrongGuess
from thunder_core.ir.program import compile_sizes
from thunder_core.pytorch_internals import set_grad_enabled
from thunder_core.runtime.bridge import Backward, join
from thunder_core.runtime.own_state import kernel_settings, without_autocast
from thunder_core.symbols.generators import generator_states, set_generator_states
from thunder_core.tracing.tracebacks import folded
from thunder_saving.archive import Archive, check_environment, read_archive
from thunder_saving.guards import Paths, prologue_from
from thunder_saving.results import result_functions
from thunder_saving.state import StateTensor, dtype_named, fill, read_state, replaced_state
from thunder_saving.verified_source import check_condition, compile_functions, value_of

__all__ = ["LoadedProgram", "load"]


def load(path: str | Path, module: Any = None, classes: Iterable[type] = ()) -> LoadedProgram:
    """Read programs that `thunder_saving.programs.save` wrote.

    Args:
        path: the file.
        module: None for the parameters and buffers of the file; or a state dict or a module that replaces them, with
            the same names, shapes and data types.
        classes: classes of your own of which results have instances, and that are no data classes.

    Raises:
        SavedProgramError: the file is damaged or foreign, needs other versions or another device, or ``module`` does
            not fit. The message has both sides.
        TraceSyntaxError: a program in the file is none, or has a name that is not allowed, with its line.
        OSError: the file cannot be opened.
    """
    archive = read_archive(path)
    check_environment(archive)
    try:
        return _loaded(archive, module, classes)
    except ThunderError:
        raise
    except Exception as error:  # what a manifest of the wrong structure causes
        raise SavedProgramError(
            f"{archive.name} was changed, or was written by another version: {type(error).__name__}: {error}"
        ) from error


def _loaded(archive: Archive, module: Any, classes: Iterable[type]) -> LoadedProgram:
    from safetensors.torch import load as read_tensors

    manifest = archive.manifest
    tensors = read_state(manifest["state"], read_tensors(archive.state))
    if module is not None:
        if not isinstance(module, torch.nn.Module | Mapping):
            raise SavedProgramError(f"module= is a state dict or a module, not a {type(module).__qualname__}")
        tensors = replaced_state(tensors, module)
    loaded = LoadedProgram(str(manifest["name"]), archive.name)
    fill(loaded, manifest["modules"], tensors)
    if isinstance(module, torch.nn.Module):
        for name, part in module.named_modules(remove_duplicate=False):
            loaded.get_submodule(name).training = part.training
    loader = _Loader(archive, loaded, tensors, result_functions(classes))
    for row in manifest["programs"]:
        loaded._programs.append(loader.program(row, f"programs/{len(loaded._programs)}"))
    for program in reversed(loaded._programs):
        loaded._dispatcher.add(program)
    return loaded


@dataclass(frozen=True, eq=False)
class SavedEntry:
    """One program.

    Attributes:
        prologue: checks the guards, and returns the inputs.
        run: ``run(inputs, args, kwargs)`` returns the result.
        kind: ``training``, ``inference`` or ``as recorded``.
        assumptions: what it was compiled for besides its guards.
        checks_values: whether ``run`` raises `WrongGuess` for values other than those of the recording.
    """

    prologue: Prologue
    run: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]
    kind: str
    assumptions: tuple[str, ...]
    checks_values: bool


class LoadedProgram(torch.nn.Module):
    """Saved programs with their state: parameters, buffers and submodules have the names of the original module.

    The submodules hold state and the flag ``training``; they cannot be called.

    Args:
        name: of the function or module that was compiled.
        path: of the file.
    """

    def __init__(self, name: str, path: str) -> None:
        super().__init__()
        self._name = name
        self._path = path
        self._dispatcher = Dispatcher()
        self._programs: list[SavedEntry] = []

    @property
    def saved_programs(self) -> tuple[SavedEntry, ...]:
        """The programs, in the order of the file."""
        return tuple(self._programs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the program for these arguments.

        Raises:
            SavedProgramError: no program covers the call; with what differs for each.
        """
        found = self._dispatcher.find(args, kwargs)
        if found is None:
            raise self._not_covered(args, kwargs)
        entry, inputs = found
        try:
            if entry.checks_values:
                return self._with_values(args, kwargs)
            return entry.run(inputs, args, kwargs)
        except Exception as error:
            error.__traceback__ = folded(error)
            raise

    def _with_values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the program for the values that it reads."""
        reasons = []
        for entry in self._programs:
            inputs = entry.prologue.function(args, kwargs)
            if inputs is None:
                continue
            try:
                return entry.run(inputs, args, kwargs)
            except WrongGuess as error:
                reasons.append(str(error))
        raise SavedProgramError(
            f"no program in {self._path} covers the values that this call of {self._name} reads: {'; '.join(reasons)}",
            advice=("save the programs of calls with these values as well",),
        )

    def _not_covered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SavedProgramError:
        lines = [f"no program in {self._path} covers this call of {self._name}:"]
        for index, entry in enumerate(self._programs):
            lines.append(f"  {index}, {describe(entry)}")
            lines.append(f"     but {entry.prologue.why(args, kwargs) or 'a guard does not hold'}")
        return SavedProgramError(
            "\n".join(lines),
            advice=("save a program for such calls as well: thunder.save(model, path, example=[..., ...])",),
        )

    def extra_repr(self) -> str:
        return f"{self._name}, {len(self._programs)} programs of {self._path}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError(
            f"a loaded program cannot be copied or pickled; its file is {self._path}",
            advice=("load the file again, with module=loaded.state_dict()",),
        )


def describe(entry: SavedEntry) -> str:
    """The calls that a program covers, in one line."""
    parts = [guard.describe() for guard in entry.prologue.guards if _is_shown(guard)]
    state = entry.prologue.state
    modes = [] if state["grad_enabled"] else ["without gradients"]
    modes += ["inference mode"] if state["inference_mode"] else []
    modes += [f"autocast {kind} {str(dtype).removeprefix('torch.')}" for kind, dtype in state["autocast"]]
    flags = {guard.expected for guard in entry.prologue.guards if guard.kind == "training"}  # type: ignore[attr-defined]
    modes += [" and ".join(["training mode" if flag else "evaluation mode" for flag in sorted(flags)])] if flags else []
    return f"{entry.kind}{', ' if modes else ''}{', '.join(modes)}: {'; '.join(parts) or 'no arguments'}"


def _is_shown(guard: Any) -> bool:
    from thunder_core.checks.source import is_argument

    return guard.kind == "sizes" or (is_argument(guard.source) and guard.kind in ("tensor", "value", "sizes", "keys"))


# ---------------------------------------------------------------- programs


class _NoSecondDerivatives:
    """In place of `thunder_core.runtime.second_derivatives.SecondDerivatives`, which compiles."""

    @staticmethod
    def remember(inputs: Sequence[Any]) -> None:
        return None

    @staticmethod
    def gradients(*_: Any) -> Any:
        raise UnsupportedError(
            "a saved program has no second derivatives (create_graph=True)",
            advice=("compute them with the compiled model, or save a program that returns the gradient: thunder.grad",),
        )


@dataclass(eq=False)
class _Differentiated:
    """What `thunder_core.runtime.bridge` needs of a program with gradients, by the names in `DifferentiatedProgram`."""

    name: str
    forward: Callable[..., tuple[Any, ...]]
    row: Mapping[str, Any]
    sizes: tuple[str, ...]
    grad_enabled: bool
    backwards: Mapping[tuple[bool, ...], list[tuple[tuple[bool, ...], Backward]]]

    second_derivatives: Any = field(default=_NoSecondDerivatives)

    def __post_init__(self) -> None:
        row = self.row
        self.outputs: int = row["outputs"]
        self.tensors: list[int] = row["tensors"]
        self.all_tensors = len(self.tensors) == row["saved"]
        self.saved_inputs = set(row["saved_inputs"])
        self.gradient_of: list[int] = row["gradient_of"]
        self.edges: list[int] = row["edges"]
        self.related = {output: tuple(others) for output, others in row["related"]}
        self.defined: dict[str, int] = row["defined"]
        self.default_dtype = dtype_named(row["default_dtype"])
        self.joint = SimpleNamespace(constant=row["constant"], cotangent_of=row["cotangent_of"])
        self.partitioned = SimpleNamespace(saved=range(row["saved"]))
        self.original = SimpleNamespace(context=SimpleNamespace(grad_enabled=self.grad_enabled))
        symbols = (*self.sizes, *self.defined)
        self.saved_strides = _strides(row["saved_strides"], symbols)
        self.cotangent_strides = _strides(row["cotangent_strides"], symbols)
        self.settings = value_of(row["settings"])

    def backward(self, present: tuple[bool, ...], wanted: tuple[bool, ...], sizes: tuple[int, ...] = ()) -> Backward:
        """The backward for these cotangents, and for these gradients or more."""
        settings = kernel_settings()
        if settings != self.settings:
            raise SavedProgramError(
                f"the backward of {self.name} was compiled under other settings of PyTorch (precision of matmuls, "
                f"deterministic algorithms, warnings only): {self.settings}, and they are {settings}",
                advice=("restore the settings before backward",),
            )
        fitting = [
            (sum(computed), backward)
            for computed, backward in self.backwards.get(present, ())
            if all(one or not other for one, other in zip(computed, wanted, strict=True))
        ]
        if not fitting:
            covered = ", ".join([_shown(key) for key in self.backwards])
            raise SavedProgramError(
                f"no program in the file computes the gradients of {self.name} from those of the results "
                f"{_shown(present)}; it has programs for {covered}",
                advice=("run such a backward with the compiled model before thunder.save",),
            )
        return min(fitting, key=lambda pair: pair[0])[1]


def _shown(present: Sequence[bool]) -> str:
    return "(" + ", ".join([str(index) for index, one in enumerate(present) if one]) + ")"


def _strides(rows: Any, symbols: tuple[str, ...]) -> Callable[..., Any]:
    """A function from the sizes to tuples of strides."""
    for name in symbols:
        if not name.isidentifier():
            raise SavedProgramError(f"{name!r} is not the name of a size")
    texts = [[check_condition(text, set(symbols), "strides") for text in row] for row in rows]
    return compile_sizes(tuple([tuple(map(_Expression, row)) for row in texts]), symbols)


class _Expression(str):
    """Text whose ``repr`` is the text."""

    __repr__ = str.__str__


@dataclass
class _Loader:
    """Creates the programs of one file."""

    archive: Archive
    loaded: LoadedProgram
    tensors: list[StateTensor]
    results: Callable[[str], Any]

    def __post_init__(self) -> None:
        constants = {tensor.name: tensor.value for tensor in self.tensors if tensor.kind == "constant"}
        self.paths = Paths(constants=constants, root=self.loaded)

    def program(self, row: Mapping[str, Any], folder: str) -> SavedEntry:
        """One program. Raises SavedProgramError or TraceSyntaxError."""
        sizes = tuple(row["sizes"])
        inputs: list[tuple[str, Source]] = []
        for each in row["inputs"]:
            name = each["name"]
            if not name.isidentifier() or name.startswith("__"):
                raise SavedProgramError(f"{name!r} is not the name of an input")
            inputs.append((name, self.paths.source(each["path"])))
        prologue = prologue_from(row["guards"], inputs, self.paths, lambda source: source.read((), {}))
        forward = self._function(f"{folder}/forward.py", row["main"])
        computation: Callable[..., Any] = forward
        if "differentiation" in row:
            varying = sizes if row["guards"]["sizes"] is not None else ()
            computation = join(self._differentiated(row["differentiation"], forward, varying, row["grad_enabled"]))  # type: ignore[arg-type]
        if row["autocast"] and row["kind"] != "as recorded":
            computation = without_autocast(computation)
        given: dict[str, Any] = {"computation": computation}
        if "epilogue" in row:
            given["epilogue"] = self._function(f"{folder}/epilogue.py", row["epilogue"])
        text = self._text(f"{folder}/run.py")
        run = compile_functions(text, "run", self._filename(f"{folder}/run.py"), results=self.results, **given)
        run = _restoring(run, bool(row["grad_enabled"]), bool(row["random"] and row["checks_values"]))
        return SavedEntry(
            prologue, run, str(row["kind"]), tuple(map(str, row["assumptions"])), bool(row["checks_values"])
        )

    def _text(self, member: str) -> str:
        text = self.archive.texts.get(member)
        if text is None:
            raise SavedProgramError(f"{self.archive.name} lacks {member}")
        return text

    def _filename(self, member: str) -> str:
        return f"{self.archive.name}/{member}"

    def _function(self, member: str, name: str, *, boxed: bool = False) -> Callable[..., Any]:
        return compile_functions(self._text(member), name, self._filename(member), boxed=boxed)

    def _differentiated(
        self, row: Mapping[str, Any], forward: Callable[..., Any], sizes: tuple[str, ...], grad_enabled: bool
    ) -> _Differentiated:
        backwards: dict[tuple[bool, ...], list[tuple[tuple[bool, ...], Backward]]] = {}
        for each in row["backwards"]:
            function = self._function(each["member"], each["main"], boxed=True)
            backward = Backward(function, tuple(each["used"]), frozenset(each["consumed"]))
            backwards.setdefault(tuple(each["present"]), []).append((tuple(each["wanted"]), backward))
        return _Differentiated(self.loaded._name, forward, row, sizes, bool(grad_enabled), backwards)


def _restoring(run: Callable[..., Any], grad_enabled: bool, random: bool) -> Callable[..., Any]:
    """A function that restores the grad mode after an exception, and random generators after `WrongGuess`."""

    def call(inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        states = generator_states() if random else None
        try:
            return run(inputs, args, kwargs)
        except BaseException as error:  # a signal handler may raise within a context manager
            set_grad_enabled(grad_enabled)
            if states is not None and isinstance(error, WrongGuess):
                set_generator_states(states)
            raise

    return call
