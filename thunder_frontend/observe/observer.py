"""The observer of the reads and writes of Python objects during one run of a program."""

from __future__ import annotations

import builtins
import functools
import gc
import inspect
import string
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    MethodType,
    TracebackType,
)
from typing import Any, Final

import torch

from thunder_core.checks.conditions import without_implied
from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import Guard
from thunder_core.checks.originals import is_compiled
from thunder_core.checks.plain import ATOM_TYPES
from thunder_core.checks.source import ArgumentSource, ClosureSource, FunctionSource, KeywordSource, Source
from thunder_core.checks.stored_attributes import MISSING
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.forking import in_child
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.tree import iterate_leaves
from thunder_core.tracing.frames import CodeKind, calls_program, is_file_of_thunder, is_installed, kind_of
from thunder_frontend.observe.abstract_stack import uses_as_value
from thunder_frontend.observe.builtin_calls import BuiltinCalls
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import NodeKind
from thunder_frontend.observe.external_calls import (
    SET_STATE,
    ThreadCalls,
    concurrent_function,
    external_call,
    foreign_function,
    generator_method,
    gives_memory,
    replaced_function,
    used_state,
)
from thunder_frontend.observe.following import Following
from thunder_frontend.observe.frame_hook import frame_hook
from thunder_frontend.observe.frame_reads import FrameReads
from thunder_frontend.observe.getters import attributes_in, attributes_in_format
from thunder_frontend.observe.heap import Heap
from thunder_frontend.observe.hidden_state import HiddenStates
from thunder_frontend.observe.lookup_methods import has_pure_lookup
from thunder_frontend.observe.outside_code import OutsideCode
from thunder_frontend.observe.stand_ins import CONVERSIONS, NUMBER_CLASSES, StandIn, is_conversion
from thunder_frontend.observe.stored_objects import Holder
from thunder_frontend.observe.writes import (
    ANY_NAMES,
    Write,
    change_read_by,
    change_seen_by,
    find_writes,
    has_changes,
    read_changed_by,
    undo_writes,
)

_running: Final[list[Observer]] = []
"""The observers of the programs that run now, in all threads."""
_NO_CONTEXT: Final = Context()
_SKIPPED = ATOM_TYPES
_NUMBERS = frozenset({("int",), ("float",)})
_FORMATTER: Final = string.Formatter.vformat.__code__
_MODULE_CREATION = torch.nn.Module.__init__.__code__
_NO_NAMES = names_of(compile("", "<nothing>", "exec"))


class Observer:
    """A context manager for one run of ``function(*args, **kwargs)`` in the calling thread.

    Create it before the run, outside of the compiler's torch-function modes. After the run, read `guards`, `writes` and
    `consumed_python_rng`, and call `undo`.

    Args:
        stand_in: returns the replacement of a function implemented in C that the program may call by another name.
        numbers: paths to Python numbers that vary between calls.
        symbol: creates the replacement of such a number.
        replacements: by name, functions that the user's code calls in place of builtins; see `WatchedBuiltins`.

    Attributes:
        global_state: PyTorch's modes and flags when the observer was created.
        generators: PyTorch's random generators.
        reads_class_of: for ``"int"`` and ``"float"`` the first function that reads classes of objects, and has this
            name in its code or such a number as an argument. It can distinguish a number from a symbol:
            ``type(n) is int``.
        class_readers: for the same names, the global variables of all such functions in which ``type`` is the builtin.
        reads_classes: the first function of the user's that reads the class of any object, for more than its name.
        may_catch_conversions: whether code uses a class of `CONVERSIONS` other than by calls, and may catch the
            exception that PyTorch raises for it: ``torch.zeros(3, dtype=float)``.
        compares_bools: the first function that compares objects with True or False by ``is``; None if there is none.
        replaced_builtins: the names of builtins that the program has replaced, added or deleted, after the run.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        stand_in: StandIn | None = None,
        numbers: Iterable[Source] = (),
        symbol: Callable[[Any, Source], Any] = lambda number, source: None,
        replacements: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.global_state = GlobalState.current()
        self._heap = Heap(stand_in, args, kwargs)
        self.generators = self._heap.generators
        self.reads_class_of: dict[str, SourceLocation] = {}
        self.class_readers: dict[str, list[dict[str, Any]]] = {}
        self.reads_classes: SourceLocation | None = None
        self.compares_bools: SourceLocation | None = None
        self._following = Following(self._heap)
        self._reads = FrameReads(self._heap, self._following)
        self._builtins = BuiltinCalls(self._heap, self._following, self.pause, self.resume)
        self._builtins.watched.replacements.update(replacements or {})
        self._threads = ThreadCalls()
        self._cached_calls: list[tuple[FrameType, str]] = []
        # modules and their lines, by id; not kept alive, as they may hold traced tensors
        self._created: dict[int, tuple[weakref.ref[Any], SourceLocation | None]] = {}
        self._depth = 0
        self._storing = False  # whether code that stores objects was entered
        self._noted: list[CodeNames] | None = None  # what `noting_code` gives, while it is active
        self._refuses_external = False
        self._context_at_pause = _NO_CONTEXT
        self._ignored: set[int] = set()  # ids of code objects in `_codes` whose kind is IGNORED
        self._hook = frame_hook(self._entered, self._left, self._raised, self._calls, self._ignored)
        self._codes: dict[int, tuple[CodeType, CodeKind, CodeNames]] = {}
        self._import: FrameType | None = None
        self._outside: FrameType | None = None  # the frame that runs the program
        self._thread = 0
        self._builtins_before: dict[str, Any] = {}
        self.replaced_builtins: list[str] = []
        self.may_catch_conversions = False
        try:
            stand_ins = self._heap.stand_ins
            stand_ins.place_numbers(numbers, symbol, args, kwargs or {})
            self._visit_roots(function, tuple(stand_ins.args), stand_ins.kwargs)
        except BaseException:
            self._heap.stand_ins.restore()
            self.generators.restore()
            raise

    def __enter__(self) -> Observer:
        self._builtins_before = vars(builtins).copy()
        self._thread = threading.get_ident()
        self._outside = sys._getframe(1)
        _running.append(self)
        self._heap.stand_ins.start()
        self._hook.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._outside is None:
            return
        with ExitStack() as stack:  # each of them, whatever another raises
            stack.callback(self._heap.without_stand_ins)
            stack.callback(self._heap.forget_tracebacks, error)
            stack.callback(self._restore_builtins)
            stack.callback(self._builtins.watched.restore)
            stack.callback(self._hook.stop)
            self._import = self._outside = None
            if self in _running:
                _running.remove(self)

    def _restore_builtins(self) -> None:
        """Put builtins back that the program has replaced: Thunder and PyTorch call them, too."""
        before, now = self._builtins_before, vars(builtins)
        self.replaced_builtins = [
            name
            for name in {**before, **now}
            if now.get(name, MISSING) is not before.get(name, MISSING) and not _is_own(name, now.get(name))
        ]
        for name in self.replaced_builtins:  # never without the others, which all threads call
            if name in before:
                now[name] = before[name]
            else:
                del now[name]

    @calls_program
    def run(self, function: Callable[..., Any]) -> Any:
        """Call ``function`` with the arguments, in a copy of the caller's context variables."""
        stand_ins = self._heap.stand_ins
        return self._heap.context.run(function, *stand_ins.args, **stand_ins.kwargs)

    def pause(self) -> None:
        """Stop observing until `resume`; pairs may nest."""
        self._depth += 1
        if self._depth == 1:
            self._hook.pause()
            self._builtins.watched.suspend()
            self._context_at_pause = copy_context()

    @contextmanager
    def noting_code(self) -> Iterator[list[CodeNames]]:
        """Collects the names in the code that runs, and `ANY_NAMES` if it calls the standard library."""
        outer, self._noted = self._noted, []
        try:
            yield self._noted
        finally:
            self._noted = outer

    @contextmanager
    def without_external_calls(self) -> Iterator[None]:
        """A context in which a builtin function that reads or changes external state raises `RunEagerly` instead."""
        outer, self._refuses_external = self._refuses_external, True
        try:
            yield
        finally:
            self._refuses_external = outer

    @property
    def observes(self) -> bool:
        """Whether the program runs: no `pause` is active."""
        return self._depth == 0

    def resume(self) -> None:
        """End the innermost `pause`."""
        self._depth -= 1
        if self._depth == 0:
            self._heap.forget_context_changes(self._context_at_pause)
            self._context_at_pause = _NO_CONTEXT
            self._hook.resume()
            self._builtins.watched.resume()

    # ------------------------------------------------------------ results

    def source_of(self, value: Any) -> Source | None:
        """The path to an object that existed before the run; None for one that the program created."""
        return self._heap.tensors.find(value)

    def path_to(self, value: Any) -> Source | None:
        """The path to an object, other than a tensor, that the program has read; None for other objects."""
        node = self._heap.nodes.get(id(value))
        return None if node is None else node.source

    def visited_module(self, is_wanted: Callable[[torch.nn.Module], bool]) -> tuple[torch.nn.Module, Source] | None:
        """A visited module for which ``is_wanted`` is true, and its path; None if there is none."""
        for node in self._heap.distinct_nodes():
            if node.kind is NodeKind.MODULE and is_wanted(node.object):
                self._heap.objects.guard_module(node)
                return node.object, node.source
        return None

    def visit(self, value: Any, source: Source) -> None:
        """Code that is not observed reads an object from a path: guard all of its contents."""
        self._heap.visit(value, source)

    def calls_method(self, kind: type, name: str) -> None:
        """The program calls a method of a class whose name is not in its code."""
        self._following.classes.function(kind, name)

    def add_guard(self, guard: Guard) -> None:
        """Add a guard to those of the observed reads."""
        self._heap.guards.append(guard)

    def original_of(self, value: Any) -> Any:
        """The object that a stand-in or a replaced builtin replaces during the run; any other object itself."""
        if is_conversion(value):
            return CONVERSIONS[value]
        return self._builtins.watched.original(self._heap.stand_ins.original(value))

    def closure_of(self, cell: CellType) -> ClosureSource | None:
        """The path to a closure variable of a visited function; None for other cells."""
        for node in self._heap.nodes.values():
            for index, held in enumerate(node.object.__closure__ or ()) if node.kind is NodeKind.FUNCTION else ():
                if held is cell:
                    return ClosureSource(node.source, index, node.object.__code__.co_freevars[index])
        return None

    @property
    def cached_before(self) -> Container[int]:
        """The ids of results of functions of ``functools.lru_cache`` that were visited before they were used."""
        return self._heap.objects.cached_before

    def called_cached_functions(self) -> tuple[Any, ...]:
        """The visited functions of ``functools.lru_cache`` that the program called."""
        return self._heap.objects.called_cached_functions()

    def metadata_read(self, function: Callable[..., Any], values: Iterable[Any]) -> None:
        """The program called ``function``, which reads metadata of the tensors among ``values``."""
        for value in values:
            if isinstance(value, torch.Tensor):
                self._heap.facts.note(function, value)

    def visit_tensor(self, tensor: torch.Tensor, source: Source) -> None:
        """The program uses the tensor at a path, of which no Python attributes are guarded."""
        self._heap.tensors.visit(tensor, source)

    def guards(self) -> tuple[Guard, ...]:
        """The guards of the observed reads; those of a path follow those of its parents."""
        self._heap.finish()
        return tuple(without_implied(self._heap.guards))

    @property
    def lost_number(self) -> bool:
        """Whether another thread replaced a symbol by a number before the program read it."""
        return self._heap.stand_ins.lost_number

    def writes(self) -> tuple[Write, ...]:
        """The changes of visited objects since their first visit."""
        return find_writes(self._heap)

    def has_changes(self) -> bool:
        """Whether an object or a variable is not now what it was at its first visit."""
        return has_changes(self._heap)

    def change_read_by(self, code: Collection[CodeNames]) -> Source | None:
        """The path of a change of an object that code may read; None if there is none. ``code`` is of `noting_code`."""
        return change_read_by(self._heap, code)

    def change_seen_by(self, code: OutsideCode) -> Source | None:
        """The path of a change that code may read which is not observed; None if there is none."""
        return change_seen_by(self._heap, code)

    def read_changed_by(self, code: OutsideCode) -> Source | None:
        """The path of something that the program has read, and that such code may change; None if there is none."""
        return read_changed_by(self._heap, code)

    def undo(self) -> None:
        """Undo all writes, and remove all stand-ins. Also ends the run, if an exception of a signal handler did not.

        The states of random generators outside of PyTorch are not restored.
        """
        self.__exit__(None, None, None)
        self._heap.without_stand_ins()
        self._heap.forget_overwritten()
        self.generators.restore()
        undo_writes(self._heap)
        self._heap.stand_ins.forget()

    def rewind(self) -> list[str]:
        """Restore buffers and random generators; returns the names of iterators and files that have advanced."""
        self._heap.buffers.restore()
        return self._heap.hidden_states.rewind()

    def changed_buffers(self) -> tuple[str, ...]:
        """The names of NumPy arrays and other buffers to which the program has written."""
        return self._heap.buffers.changed()

    def buffers(self) -> list[tuple[Any, Source]]:
        """The NumPy arrays and other buffers that the program reads, with their paths; valid before `guards`."""
        return [(node.object, node.source) for node in self._heap.objects.buffers]

    def consumed_python_rng(self) -> list[str]:
        """The hidden states that the run changed, such as random generators outside of PyTorch; valid before `undo`."""
        return self._heap.hidden_states.consumed()

    @property
    def hidden_states(self) -> HiddenStates:
        """The states of random generators outside of PyTorch, and of iterators; valid before `undo`."""
        return self._heap.hidden_states

    def close(self) -> None:
        """Release all references to objects of the program, without the garbage collector.

        Its parts refer to each other in cycles, which would live until the next full collection.
        """
        self._heap.close()
        for part in (self._following, self._reads, self._builtins.watched, self._builtins, self):
            vars(part).clear()

    # ------------------------------------------------------------ roots

    def _visit_roots(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        label = "module" if isinstance(function, torch.nn.Module) else "function"
        root = FunctionSource(function, label)
        self._heap.visit(function, root)
        if not isinstance(function, FunctionType | MethodType | torch.nn.Module):
            self._following.classes.function(type(function), "__call__")
        code = _entry_code(function)
        by_key = code is not None and kind_of(code) is CodeKind.USER  # its frame determines the reads of arguments
        named = _wrapped_by(function)
        names = _parameter_names(named, _entry_code(named))
        for index, value in enumerate(args):
            source = ArgumentSource(index, names[index] if index < len(names) else "")
            self._heap.visit(value, source, by_key=by_key)
        for name, value in kwargs.items():
            self._heap.visit(value, KeywordSource(name), by_key=by_key)

    # ------------------------------------------------------------ frames

    def _lookup(self, frame: FrameType) -> tuple[CodeType, CodeKind, CodeNames]:
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            self._heap.made_classes.code_runs(code)
            kind = CodeKind.IGNORED if _is_of_collector(code) or _is_generated(frame) else kind_of(code)
            names = _NO_NAMES if kind is CodeKind.IGNORED else names_of(code)
            known = self._codes[id(code)] = (code, kind, names)
            if kind is CodeKind.IGNORED:  # most are Thunder's: they took 29 % of the recording of Llama-2-7B
                self._ignored.add(id(code))
        return known

    def _entered(self, frame: FrameType) -> None:
        _, kind, names = self._codes.get(id(frame.f_code)) or self._lookup(frame)
        if kind is CodeKind.IGNORED or self._importing(frame):
            return
        if kind is CodeKind.IMPORT:
            self._import = frame
            return
        if self._noted is not None and kind is not CodeKind.LIBRARY:
            self._noted.append(names)
        self._builtins.watched.suspend()
        try:
            self._read_entered(frame, kind, names)
        finally:
            self._builtins.watched.resume()

    def _read_entered(self, frame: FrameType, kind: CodeKind, names: CodeNames) -> None:
        variables = frame.f_locals
        if kind is CodeKind.MODULE_CALL:
            self._reads.module_called(variables["self"])
            return
        if kind is CodeKind.LIBRARY:
            self._library_entered(frame, variables, names)
            return
        cached = self._heap.objects.cached_function_of(frame.f_code)
        if cached is not None:
            self._cached_function_runs(frame, cached.__qualname__, variables)
        self._storing |= names.stores
        if self._storing:
            caller, stored = next(self._callers(frame), (None, names))
            if caller is not None and stored.stores:
                self._following.stored.code_ran(caller, stored)
        if names.of_lookup is not None and len(names.arguments) > 1:
            receiver, name = (variables.get(argument) for argument in names.arguments[:2])
            names = names.of_lookup if has_pure_lookup(receiver, str(name)) else names
        getters = self._heap.getters
        names = getters.extend(names)
        self._read_frame(frame, variables, kind, names)
        if getters.extend(names) is not names:  # the frame itself has read a getter
            self._read_frame(frame, variables, kind, getters.extend(names))

    def _cached_function_runs(self, frame: FrameType, name: str, variables: dict[str, Any]) -> None:
        if any(isinstance(value, torch.Tensor) for value in variables.values()):
            raise RunEagerly(f"{name}, which has a functools.lru_cache, is called with tensors")
        self._cached_calls.append((frame, name))

    def _created_by(self, frame: FrameType) -> SourceLocation | None:
        """The innermost line of the program that is in no installed package, else the innermost line."""
        callers = [caller for caller, _ in self._callers(frame)]
        own = [caller for caller in callers if not is_installed(caller.f_code.co_filename)]
        return _location((own or callers)[0]) if callers else None

    def created_at(self, value: object) -> SourceLocation | None:
        """The line of the program that has created a module; None for other objects."""
        created, line = self._created.get(id(value), (None, None))
        return line if created is not None and created() is value else None

    def check_may_record(self) -> None:
        """Raise `RunEagerly` in a function of ``functools.lru_cache``, which would store what is recorded."""
        if self._cached_calls:
            raise RunEagerly(f"{self._cached_calls[-1][1]}, which has a functools.lru_cache, computes with tensors")

    def code_by_types(self) -> SourceLocation | None:
        """The first function of the user that reads types or identities of objects; None if there is none.

        Such a function can distinguish a placeholder from the object that it replaces.
        """
        for code, kind, names in self._codes.values():
            if kind is CodeKind.USER and names.compares_types:
                return SourceLocation(code.co_filename, code.co_firstlineno, code.co_qualname)
        return None

    def _importing(self, frame: FrameType) -> bool:
        """Whether a frame runs inside of an import, of the program, PyTorch or Thunder."""
        if self._import is None:
            return False
        caller: FrameType | None = frame
        while caller is not None and caller is not self._import:
            caller = caller.f_back
        if caller is None:  # the import has ended with an exception, or in a pause
            self._import = None
        return caller is not None

    def _read_frame(self, frame: FrameType, variables: dict[str, Any], kind: CodeKind, names: CodeNames) -> None:
        code, reads, reach = frame.f_code, self._reads, self._following.reach
        if names.arguments:
            receiver = variables.get(names.arguments[0])
            if code is _MODULE_CREATION:
                self._created[id(receiver)] = (weakref.ref(receiver), self._created_by(frame))
            if type(receiver) not in _SKIPPED:
                reads.method_entered(receiver, code)
        for name in names.arguments:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                is_fixed = id(value) in self._heap.nodes and name not in names.stored_locals | names.stored_cells
                reach(value, names, name, Holder.ARGUMENT if is_fixed else Holder.ANY)
        if names.compares_bools and kind is CodeKind.USER and self.compares_bools is None:
            self.compares_bools = SourceLocation(code.co_filename, frame.f_lineno, code.co_qualname)
        if names.uses_class:
            if kind is CodeKind.USER and self.reads_classes is None:
                self.reads_classes = SourceLocation(code.co_filename, frame.f_lineno, code.co_qualname)
            classes = {name for (name,) in _NUMBERS.intersection(names.chains)}
            for name in names.arguments:
                number = NUMBER_CLASSES.get(type(variables.get(name)))
                if number is not None:
                    classes.add(number)
            for name in classes:
                place = SourceLocation(code.co_filename, frame.f_lineno, code.co_qualname)
                self.reads_class_of.setdefault(name, place)
                if not is_conversion(frame.f_globals.get("type")):
                    self.class_readers.setdefault(name, []).append(frame.f_globals)
        if kind is CodeKind.MODULE:
            return
        reads.function_entered(code, names)
        for name in names.free:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                reach(value, names, name)
        if not code.co_flags & inspect.CO_OPTIMIZED:  # `eval` and `exec` give it the variables of their caller
            for name in dict.fromkeys([chain[0] for chain in names.chains]):
                if type(variables.get(name)) not in _SKIPPED:
                    reach(variables[name], names, name)
        self._following.stored.entered(names)
        reads.globals_read(code, names, frame.f_globals)
        self._builtins.frame_entered(names, frame.f_globals)
        for (name,) in _NUMBERS.intersection(names.chains):
            if is_conversion(frame.f_globals.get(name)) and uses_as_value(code, name):
                self.may_catch_conversions |= names.catches or bool(self._catching(frame))

    def _library_entered(self, frame: FrameType, variables: dict[str, Any], names: CodeNames) -> None:
        """The standard library (``copy``, ``dataclasses``) may read any attribute of arguments from user code."""
        self._heap.environment.entered(frame)
        self._heap.hidden_states.entered(frame)
        self._heap.state_reads.entered(frame)
        if frame.f_code is _FORMATTER and isinstance(variables.get("format_string"), str):
            self._read_attributes(frame, attributes_in(variables["format_string"]))
        caller = frame.f_back
        is_users = caller is not None and self._lookup(caller)[1] is CodeKind.USER
        concurrent = concurrent_function(frame, is_users=is_users)
        if concurrent is not None:
            for value in iterate_leaves(tuple(variables.values())):
                if isinstance(value, CoroutineType):
                    value.close()  # without a warning that it was never awaited
            raise RunEagerly(f"the program calls {concurrent}")
        if not is_users:
            return
        if self._noted is not None:
            self._noted.append(ANY_NAMES)
        for name in names.arguments:
            value = variables.get(name)
            if type(value) not in _SKIPPED:
                self._reads.passed_to_library(value, names, frame.f_globals.get("__name__"))

    def _left(self, frame: FrameType, value: Any) -> None:
        _, kind, names = self._codes.get(id(frame.f_code)) or self._lookup(frame)
        if kind is CodeKind.IGNORED:
            return
        if frame is self._import:
            self._import = None
        elif self._importing(frame):
            return
        self._builtins.watched.suspend()
        try:
            self._read_left(frame, kind, names, value)
        finally:
            self._builtins.watched.resume()

    def _read_left(self, frame: FrameType, kind: CodeKind, names: CodeNames, value: Any) -> None:
        self._heap.hidden_states.left(frame)
        if self._cached_calls and frame is self._cached_calls[-1][0]:
            self._cached_calls.pop()
            self._heap.objects.visit_cached(value)
        if kind is CodeKind.USER and names.stores:
            self._following.stored.frame_left(frame, names, {reader: None for _, reader in self._callers(frame)})
        if kind is CodeKind.USER and names.raises and value is None:
            self._following.stored.raised(frame, names, self._catching(frame))
        if value is None or type(value) in _SKIPPED or issubclass(type(value), torch.Tensor):
            return
        caller, reader = next(self._callers(frame), (None, names))
        if caller is None:
            return
        self._following.reach(value, self._heap.getters.extend(reader), None)
        for catching in self._catching(caller) if reader.raises else ():  # it may raise an exception with the value
            self._following.reach(value, catching, None)

    def _catching(self, frame: FrameType) -> dict[CodeNames, None]:
        """The names in the code of the frame's callers that may catch an exception."""
        return {reader: None for _, reader in self._callers(frame) if reader.catches}

    def _raised(self, frame: FrameType, error: BaseException) -> None:
        if self._importing(frame):
            return
        self._builtins.watched.suspend()
        try:
            for catching in self._catching(frame):
                self._following.reach(error, catching, None)
        finally:
            self._builtins.watched.resume()

    def _callers(self, frame: FrameType) -> Iterator[tuple[FrameType, CodeNames]]:
        """The program's frames that called a frame, the innermost first, with the names in their code."""
        caller = frame.f_back
        while caller is not None and caller is not self._outside:
            _, kind, names = self._codes.get(id(caller.f_code)) or self._lookup(caller)
            if kind is CodeKind.USER:
                yield caller, names
            caller = caller.f_back

    def _calls(self, frame: FrameType, function: Any) -> None:
        """A builtin function is called, which may read or change state outside of the program.

        Raises:
            UnsupportedError: the call would run once, at compile time: it reads or changes the state of a generator, or
                recording replaces the function, and the program has a reference to the original.
            RunEagerly: another thread would get tensors without values.
        """
        if self._importing(frame) or _is_of_collector(frame.f_code):
            return
        attributes = attributes_in_format(function)
        if attributes:
            self._read_attributes(frame, attributes)
        if gives_memory(function):
            raise UnsupportedError(
                f"{function.__name__} inside a compiled function would give the memory of the first call's tensor",
                location=_location(frame),
                advice=("use the tensor itself", "call it outside of the compiled function"),
            )
        replaced = replaced_function(function, frame)
        if replaced is not None:
            raise UnsupportedError(
                f"{replaced} is called through an alias that was created before the program was recorded; it would "
                "run once, at compile time",
                location=_location(frame),
                advice=(
                    "call it as print(...), YourFunction.apply(...), tensor.as_subclass(...) or "
                    "torch.overrides.has_torch_function(...)",
                ),
            )
        method = generator_method(function, frame)
        if method is not None and not self.generators.is_repeated(function.__self__, method):
            raise UnsupportedError(
                f"torch.Generator.{method} inside a compiled function would run once, at compile time",
                location=_location(frame),
                advice=(
                    "call torch.manual_seed, torch.get_rng_state and torch.set_rng_state, which act on the default "
                    "generator at each call",
                    "seed other generators outside of the compiled function, and use them inside",
                    "create a generator inside, and seed it with manual_seed before it is used",
                ),
            )
        if function.__name__ == SET_STATE and isinstance(getattr(function, "__self__", None), functools.partial):
            path = self.path_to(function.__self__)
            if path is not None:
                raise RunEagerly(f"the program changes {path.describe()} by __setstate__")
        unknown = used_state(function, frame) or foreign_function(function, frame)
        if unknown is not None:
            raise RunEagerly(f"the program calls {unknown}")
        effect = self._threads.effect(function, frame)
        if effect is not None:
            raise RunEagerly(f"the program {effect}")
        name = external_call(function, frame)
        if name is not None and self._refuses_external:
            raise RunEagerly(f"the program calls {name}")
        if name is not None:
            self._heap.hidden_states.external(name, getattr(function, "__self__", None))

    def _read_attributes(self, frame: FrameType, attributes: Iterable[str]) -> None:
        """A builtin function that a frame calls reads attributes of the objects that the program's frames reach."""
        self._heap.getters.add(attributes)
        _, kind, names = self._lookup(frame)
        readers = [(frame, names)] if kind is CodeKind.USER else []
        self._builtins.watched.suspend()
        try:
            for reader, own in [*readers, *self._callers(frame)]:
                self._read_frame(reader, reader.f_locals, CodeKind.USER, self._heap.getters.extend(own))
        finally:
            self._builtins.watched.resume()


def _is_own(name: str, value: Any) -> bool:
    """Whether a builtin is Python's own: a function that replaced it before the program ran stays away."""
    return type(value) is BuiltinFunctionType and value.__self__ is builtins and value.__name__ == name


def _location(frame: FrameType) -> SourceLocation:
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def _is_generated(frame: FrameType) -> bool:
    """Whether code was generated for PyTorch or Thunder, for example by `dataclasses`; it has no file."""
    if not frame.f_code.co_filename.startswith("<"):
        return False
    variables = frame.f_globals
    of_torch = str(variables.get("__name__")).partition(".")[0] == "torch"
    return of_torch or is_file_of_thunder(str(variables.get("__file__")))


def _is_of_collector(code: CodeType) -> bool:
    """Whether code is a callback of the garbage collector, which is not part of the program."""
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


def _entry_code(function: Any) -> CodeType | None:
    """The code that a call of ``function`` runs first, except for PyTorch's; None if it is not Python code."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
    elif not isinstance(function, FunctionType | MethodType):
        function = getattr(type(function), "__call__", None)  # noqa: B004  the code of any callable
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _wrapped_by(function: Any) -> Any:
    """The program of the user's that a compiled or transformed one takes its parameters from."""
    while is_compiled(function) and "__wrapped__" in vars(function):
        function = function.__wrapped__
    return function


def _parameter_names(function: Any, code: CodeType | None) -> tuple[str, ...]:
    """The names of positional parameters, without that of the receiver."""
    if code is None:
        return ()
    return code.co_varnames[0 if isinstance(function, FunctionType) else 1 : code.co_argcount]


@in_child
def _undo_in_child() -> None:
    """End and undo the programs that other threads were running: they do not go on."""
    for observer in [one for one in _running if one._thread != threading.get_ident()]:
        observer.undo()
