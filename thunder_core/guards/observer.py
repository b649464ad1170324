"""Observe what a program reads from Python and writes to it while it runs once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context, copy_context
from types import CellType, CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.guards.builtin_calls import BuiltinCalls
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.code_names import CodeNames, names_of
from thunder_core.guards.following import Following
from thunder_core.guards.frame_hook import frame_hook
from thunder_core.guards.frame_reads import FrameReads
from thunder_core.guards.global_state import GlobalState
from thunder_core.guards.guard import Guard
from thunder_core.guards.heap import Heap, is_wrapper
from thunder_core.guards.lookups import may_be_asked
from thunder_core.guards.node import NodeKind
from thunder_core.guards.outside_reads import generator_method, gives_memory, held_by_name, outside_read
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import ArgumentSource, ConstantSource, FunctionSource, KeywordSource, Source
from thunder_core.guards.stand_ins import NUMBER_CLASSES, StandIn
from thunder_core.guards.steps import AttributeSource, ClosureSource
from thunder_core.guards.wrapper_guard import DTensorRulesGuard, WrapperGuard, dtensor_rules, flattened
from thunder_core.guards.writes import Write, WriteKind, find_writes, undo_writes
from thunder_core.ir.location import SourceLocation

__all__ = ["Observer", "Write", "WriteKind"]

_NO_CONTEXT: Final = Context()
_SKIPPED = ATOM_TYPES
_NUMBERS = frozenset({("int",), ("float",)})
_NO_NAMES = names_of(compile("", "<nothing>", "exec"))


class Observer:
    """A context manager around one run of ``function(*args, **kwargs)`` in the calling thread.

    Create it before the run, outside of any torch-function mode of the compiler's own. After the run ask for `guards`,
    `writes` and `consumed_python_rng`, then call `undo`.

    Args:
        stand_in: what takes the place of functions of C that the program holds under names of its own.
        numbers: paths to Python numbers that vary between calls.
        symbol: makes what takes their place.

    Attributes:
        global_state: PyTorch's modes and flags when the observer was made.
        generators: PyTorch's random generators that the program reaches.
        tells: for ``int`` and ``float`` the first function that asks objects for their class, and names it or is given
            such a number, and so may tell a number from what stands for one: ``type(n) is int``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        stand_in: StandIn | None = None,
        numbers: Iterable[Source] = (),
        symbol: Callable[[Any, Source], Any] = lambda number, source: None,
        answers: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.global_state = GlobalState.current()
        self._dtensor_rules: tuple[Any, ...] | None = dtensor_rules()
        self._heap = Heap(stand_in, args, kwargs)
        self.generators = self._heap.generators
        self.tells: dict[str, SourceLocation] = {}
        self._following = Following(self._heap)
        self._reads = FrameReads(self._heap, self._following)
        self._builtins = BuiltinCalls(self._heap, self._following)
        self._builtins.watched.answers.update(answers or {})
        self._depth = 0
        self._context_at_pause = _NO_CONTEXT
        self._ignored: set[int] = set()  # the ids of those in `_codes` whose frames are
        self._hook = frame_hook(self._entered, self._left, self._calls, self._ignored)
        self._codes: dict[int, tuple[CodeType, CodeKind, CodeNames]] = {}
        self._import: FrameType | None = None
        try:
            stand_ins = self._heap.stand_ins
            stand_ins.place_numbers(numbers, symbol, args, kwargs or {})
            self._meet_roots(function, tuple(stand_ins.args), stand_ins.kwargs)
        except BaseException:
            self._heap.stand_ins.restore()
            self.generators.restore()
            raise

    def __enter__(self) -> Observer:
        self._heap.stand_ins.start()
        self._hook.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hook.stop()
        self._import = None
        self._builtins.watched.restore()
        self._heap.without_stand_ins()

    def run(self, function: Callable[..., Any]) -> Any:
        """Call ``function`` with the arguments; what it does to context variables is seen, and ends with the call."""
        stand_ins = self._heap.stand_ins
        return self._heap.context.run(function, *stand_ins.args, **stand_ins.kwargs)

    def pause(self) -> None:
        """Stop observing until `resume`; pairs may nest."""
        self._depth += 1
        if self._depth == 1:
            self._hook.pause()
            self._builtins.watched.active = False
            self._context_at_pause = copy_context()

    def resume(self) -> None:
        """End the innermost `pause`."""
        self._depth -= 1
        if self._depth == 0:
            self._heap.forget_context_changes(self._context_at_pause)
            self._context_at_pause = _NO_CONTEXT
            self._hook.resume()
            self._builtins.watched.active = True

    # ------------------------------------------------------------ answers

    def source_of(self, value: Any) -> Source | None:
        """The path to an object that existed before the run; None for one that the program made."""
        return self._heap.tensors.find(value)

    def path_to(self, value: Any) -> Source | None:
        """The path to an object other than a tensor that the program has read; None for one that it has not."""
        node = self._heap.nodes.get(id(value))
        return None if node is None else node.source

    def met_module(self, is_wanted: Callable[[torch.nn.Module], bool]) -> tuple[torch.nn.Module, Source] | None:
        """A module that a path leads to, and the path; None where no module that was met is wanted."""
        for node in self._heap.distinct_nodes():
            if node.kind is NodeKind.MODULE and is_wanted(node.object):
                self._heap.guard_module(node)
                return node.object, node.source
        return None

    def met(self, value: Any, source: Source) -> None:
        """The program reads a value from a path by code that is not observed: guard all of it."""
        self._heap.meet(value, source)

    def add_guard(self, guard: Guard) -> None:
        """Have each call checked by a guard, besides those of what the program reads."""
        self._heap.guards.append(guard)

    def original_of(self, value: Any) -> Any:
        """What a function stands for that took the place of another one during the run; any other object itself."""
        return self._builtins.watched.original(self._heap.stand_ins.original(value))

    def closure_of(self, cell: CellType) -> ClosureSource | None:
        """The path to a closure variable of a function that was met; None for a cell that no such function has."""
        for node in self._heap.nodes.values():
            for index, held in enumerate(node.object.__closure__ or ()) if node.kind is NodeKind.FUNCTION else ():
                if held is cell:
                    return ClosureSource(node.source, index, node.object.__code__.co_freevars[index])
        return None

    def called_cached_functions(self) -> tuple[Any, ...]:
        """The functions of ``functools.lru_cache`` that the program called, as far as they were met."""
        return self._heap.objects.called_cached_functions()

    def asked(self, function: Callable[..., Any], values: Iterable[Any]) -> None:
        """The program called ``function``, which reads metadata, with ``values``; others than tensors do not count."""
        for value in values:
            if isinstance(value, torch.Tensor):
                self._heap.facts.note(function, value)

    def met_wrapper(self, tensor: torch.Tensor, source: Source, is_made: Callable[[Any], bool]) -> list[torch.Tensor]:
        """The program uses a wrapper subclass: guard it. Its inner tensors, which have paths from here on.

        Args:
            is_made: whether the program made a tensor, and put it there.

        Raises:
            NotComparableError: what it says of itself cannot be compared.
        """
        self._heap.tensors.met(tensor, source)
        self._heap.guards.append(WrapperGuard.of(source, tensor))
        parts = flattened(tensor)[0].items()
        inner = {name: part for name, part in parts if isinstance(part, torch.Tensor) and not is_made(part)}
        for name, part in inner.items():
            self._heap.tensors.met(part, AttributeSource(source, name))
        return list(inner.values())

    def used_dtensor(self, kind: type) -> None:
        """The program calls an operator of a DTensor, a tensor of the class ``kind``."""
        if self._dtensor_rules is not None:
            self._heap.guards.append(DTensorRulesGuard(ConstantSource(kind), self._dtensor_rules))
            self._dtensor_rules = None

    def guards(self) -> tuple[Guard, ...]:
        """What was read, in an order in which each path's guards follow those of its parts."""
        self._heap.finish()
        return tuple(self._heap.guards)

    def writes(self) -> tuple[Write, ...]:
        """What was changed since it was first met."""
        return find_writes(self._heap)

    def undo(self) -> None:
        """Take all writes back, and what was put in place of the user's objects.

        Random states outside of PyTorch stay consumed, as after a run of the program.
        """
        self._heap.without_stand_ins()
        self._heap.forget_overwritten()
        self.generators.restore()
        undo_writes(self._heap)
        self._heap.stand_ins.forget()

    def rewind(self) -> list[str]:
        """Take back what random generators outside of PyTorch drew; names of iterators and files that have advanced."""
        return self._heap.hidden_states.rewind()

    def consumed_python_rng(self) -> list[str]:
        """Generators outside of PyTorch whose state the run changed; ask before `undo`."""
        return self._heap.hidden_states.consumed()

    def close(self) -> None:
        """Let go of the program's objects at once instead of when reference cycles are collected."""
        self.__dict__.pop("_hook", None)
        self.__dict__.pop("_builtins", None)
        self._heap.close()

    # ------------------------------------------------------------ roots

    def _meet_roots(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        label = "module" if isinstance(function, torch.nn.Module) else "function"
        root = FunctionSource(function, label)
        self._heap.meet(function, root)
        if not isinstance(function, FunctionType | MethodType | torch.nn.Module):
            self._following.classes.function(type(function), "__call__")
        code = _entry_code(function)
        by_key = code is not None and kind_of(code) is CodeKind.USER  # its frame says how arguments are read
        named = _made_from(function)
        names = _parameter_names(named, _entry_code(named))
        for index, value in enumerate(args):
            source = ArgumentSource(index, names[index] if index < len(names) else "")
            self._heap.meet(value, source, by_key=by_key)
        for name, value in kwargs.items():
            self._heap.meet(value, KeywordSource(name), by_key=by_key)

    # ------------------------------------------------------------ frames

    def _lookup(self, frame: FrameType) -> tuple[CodeType, CodeKind, CodeNames]:
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            kind = CodeKind.IGNORED if _is_of_collector(code) or _is_generated(frame) else kind_of(code)
            names = _NO_NAMES if kind is CodeKind.IGNORED else names_of(code)
            known = self._codes[id(code)] = (code, kind, names)
            if kind is CodeKind.IGNORED:  # Thunder's own above all: 29 % of acquiring Llama-2-7B were spent on these
                self._ignored.add(id(code))
        return known

    def _entered(self, frame: FrameType) -> None:
        _, kind, names = self._codes.get(id(frame.f_code)) or self._lookup(frame)
        if kind is CodeKind.IGNORED or self._importing(frame):
            return
        if kind is CodeKind.IMPORT:
            self._import = frame
            return
        variables = frame.f_locals
        if kind is CodeKind.MODULE_CALL:
            self._reads.module_called(variables["self"])
            return
        if kind is CodeKind.LIBRARY:
            self._library_entered(frame, variables, names)
            return
        if names.of_lookup is not None and len(names.arguments) > 1:
            receiver, name = (variables.get(argument) for argument in names.arguments[:2])
            names = names.of_lookup if may_be_asked(receiver, str(name)) else names
        getters = self._heap.getters
        names = getters.extend(names)
        self._read_frame(frame, variables, kind, names)
        if getters.extend(names) is not names:  # the frame itself led to the first, or to another one
            self._read_frame(frame, variables, kind, getters.extend(names))

    def _importing(self, frame: FrameType) -> bool:
        """Whether ``frame`` runs inside of an import, which may be the program's, PyTorch's or Thunder's."""
        if self._import is None:
            return False
        caller: FrameType | None = frame
        while caller is not None and caller is not self._import:
            caller = caller.f_back
        if caller is None:  # it has ended with an exception, or in a pause
            self._import = None
        return caller is not None

    def _read_frame(self, frame: FrameType, variables: dict[str, Any], kind: CodeKind, names: CodeNames) -> None:
        code, reads, reach = frame.f_code, self._reads, self._following.reach
        if names.arguments:
            receiver = variables.get(names.arguments[0])
            if type(receiver) not in _SKIPPED:
                reads.method_entered(receiver, code)
        for name in names.arguments:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                reach(value, names, name)
        if names.uses_class:
            told = {name for (name,) in _NUMBERS.intersection(names.chains)}
            for name in names.arguments:
                number = NUMBER_CLASSES.get(type(variables.get(name)))
                if number is not None:
                    told.add(number)
            for name in told:
                place = SourceLocation(code.co_filename, frame.f_lineno, code.co_qualname)
                self.tells.setdefault(name, place)
        if kind is CodeKind.MODULE:
            return
        reads.function_entered(code, names)
        for name in names.free:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                reach(value, names, name)
        reads.globals_read(code, names, frame.f_globals)
        self._builtins.frame_entered(names, frame.f_globals)

    def _library_entered(self, frame: FrameType, variables: dict[str, Any], names: CodeNames) -> None:
        """The standard library may read anything of what user code hands to it (``copy``, ``dataclasses``, ...)."""
        self._reads.environment.entered(frame)
        self._heap.hidden_states.entered(frame)
        self._heap.levels.entered(frame)
        caller = frame.f_back
        if caller is None or self._lookup(caller)[1] is not CodeKind.USER:
            return
        for name in names.arguments:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                self._reads.handed_to_library(value)

    def _left(self, frame: FrameType, value: Any) -> None:
        if (self._codes.get(id(frame.f_code)) or self._lookup(frame))[1] is CodeKind.IGNORED:
            return
        if frame is self._import:
            self._import = None
        elif self._importing(frame):
            return
        self._heap.hidden_states.left(frame)
        if value is None or type(value) in _SKIPPED or isinstance(value, torch.Tensor):
            return
        caller = frame.f_back
        while caller is not None:
            _, kind, names = self._codes.get(id(caller.f_code)) or self._lookup(caller)
            if kind is CodeKind.USER:
                self._following.reach(value, names, None)
                return
            caller = caller.f_back

    def _calls(self, frame: FrameType, function: Any) -> None:
        """A builtin function is called, which may read or change something outside of the program.

        Raises:
            UnsupportedError: it would run once, at compile time: it reads or changes the state of a generator, or it is
                replaced while a program is recorded, and the program has the original.
        """
        if self._importing(frame) or _is_of_collector(frame.f_code):
            return
        location = SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        if gives_memory(function):
            raise UnsupportedError(
                f"{function.__name__} inside a compiled function would give the memory of the first call's tensor",
                location=location,
                advice=("use the tensor itself", "call it outside of the compiled function"),
            )
        held = held_by_name(function, frame)
        if held is not None:
            raise UnsupportedError(
                f"{held} is called by another name, which it got before the program was recorded, and would run once, "
                "at compile time",
                location=location,
                advice=(
                    "call it as print(...), YourFunction.apply(...), tensor.as_subclass(...) or "
                    "torch.overrides.has_torch_function(...)",
                ),
            )
        method = generator_method(function, frame)
        if method is not None and not self.generators.is_repeated(function.__self__, method):
            raise UnsupportedError(
                f"torch.Generator.{method} inside a compiled function would run once, at compile time",
                location=location,
                advice=(
                    "call torch.manual_seed, torch.get_rng_state and torch.set_rng_state, which act on the default "
                    "generator at each call",
                    "seed other generators outside of the compiled function, and use them inside",
                    "make a generator inside, and seed it with manual_seed before it is used",
                ),
            )
        name = outside_read(function, frame)
        if name is not None:
            self._heap.hidden_states.called(name)


def _is_generated(frame: FrameType) -> bool:
    """Whether PyTorch or Thunder generated the code, as `dataclasses` does for their classes: it is in no file."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return frame.f_code.co_filename.startswith("<") and package in ("torch", "thunder", "thunder_core")


def _is_of_collector(code: CodeType) -> bool:
    """Whether the garbage collector calls the code, which may be at any time and is no part of the program."""
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


def _entry_code(function: Any) -> CodeType | None:
    """The code that a call of ``function`` runs first, apart from PyTorch's own; None when it is not Python."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
    elif not isinstance(function, FunctionType | MethodType):
        function = getattr(type(function), "__call__", None)  # noqa: B004  whatever it is, its code is asked for
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _made_from(function: Any) -> Any:
    """The program of the user's that a compiled or transformed one takes its parameters from."""
    while is_wrapper(function) and "__wrapped__" in vars(function):
        function = function.__wrapped__
    return function


def _parameter_names(function: Any, code: CodeType | None) -> tuple[str, ...]:
    """Names of positional parameters as the caller counts them."""
    if code is None:
        return ()
    return code.co_varnames[0 if isinstance(function, FunctionType) else 1 : code.co_argcount]
