"""The sizes of one compilation that vary between calls: their symbols, and facts about these.

Sizes of fake tensors are ``SymInt`` of PyTorch's ``ShapeEnv``. Each use of the value of one adds a fact to it: ``if
x.shape[0] > 4`` adds ``s0 > 4``, ``int(x.shape[0])`` adds ``s0 == 17``. The prologue checks the facts.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol
from weakref import ref

import torch

from thunder_core.errors import AcquisitionError, SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation, at
from thunder_core.ir.size import SIZE_NAMES, Size, SizeExpr, on_fakes
from thunder_core.pytorch_errata import preserving_symbolic_sizes, returns_argument
from thunder_core.pytorch_internals import EnablePythonDispatcher, size_settings
from thunder_core.tracing.creation import has_counted_size
from thunder_core.tracing.frames import raising_location, user_location

SMALLEST: Final = 2
"""Sizes 0 and 1 are constants: PyTorch's kernels and broadcasting treat them specially."""
LARGEST: Final = 2**62
_numbers: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class SizeFact:
    """A condition on symbols and floats under which a compiled program is valid.

    Attributes:
        condition: Python over their names.
        location: the line of the user's program that depends on it; None for conditions of the compiler, and ranges.
        value: for a symbol with one possible value, its name and value.
        symbols: the names of the symbols in the condition; empty for ranges.
    """

    condition: str
    location: SourceLocation | None = None
    value: tuple[str, int] | None = None
    symbols: tuple[str, ...] = ()


@functools.cache
def _classes() -> tuple[Any, Any, Any]:
    """The subclasses of PyTorch's classes, defined on first use: importing the base classes takes 0.3 s."""
    from thunder_core.pytorch_internals import GuardSource, PythonPrinter, ShapeEnv, ShapeSource

    @dataclass(frozen=True)
    class SizeSource(ShapeSource):
        """The source of a symbol: the path of a tensor and a dimension."""

        path: str = ""

        @functools.cached_property
        def name(self) -> str:
            return self.path

        @functools.cached_property
        def guard_source(self) -> Any:
            return GuardSource.LOCAL

    class Environment(ShapeEnv):
        """Names symbols ``s0``, ``s1``, ... in the order of the inputs, and records the user's line of each fact."""

        def __init__(self, sizes: ref[Sizes]) -> None:
            super().__init__(
                duck_shape=False,
                allow_scalar_outputs=False,
                allow_dynamic_output_shape_ops=False,
            )
            self.sizes = sizes  # weak: the reference from `Sizes` is strong
            self.symbol_count = 0

        def _generate_unique_id(self, source_name: str) -> int:
            self.symbol_count += 1
            return self.symbol_count - 1

        def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
            known = len(self.guards)
            result = super().evaluate_expr(*args, **kwargs)
            if len(self.guards) > known:
                sizes = self.sizes()
                assert sizes is not None
                sizes.locate_facts(len(self.guards))
            return result

        def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
            """Replace a symbol by an expression, unless a symbol in that is defined later in the program."""
            sizes = self.sizes()
            assert sizes is not None
            if not sizes.is_later(tgt, a):
                super()._set_replacement(a, tgt, msg)
            elif tgt.is_Symbol:
                super()._set_replacement(tgt, a, msg)

    class Printer(PythonPrinter):
        """Prints expressions as Python on ints; PyTorch's printer also supports symbols."""

        def _print_ToFloat(self, expression: Any) -> str:
            return f"float({self._print(expression.args[0])})"

    return SizeSource, Environment, Printer


@functools.cache
def _warm_up() -> None:
    """Let SymPy set up its global state (``decimal`` context, caches) now and not while a program is recorded."""
    sizes = Sizes(warm=False)
    size = sizes.new(5, "")
    assert isinstance(size, SizeExpr)
    assert size.symint > 4
    assert (size.symint * 3) // 2 + size.symint % 3 != 5


class Watcher(Protocol):
    """The observer of a program that is recorded."""

    def pause(self) -> None:
        """Stop observing until `resume`."""
        ...

    def resume(self) -> None:
        """Continue observing after `pause`."""
        ...


class Floats(Protocol):
    """The recorder of varying floats."""

    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """The result of ``function`` on sizes and numbers, as a value of the recorded program."""
        ...


class Sizes:
    """The symbols of one compilation; the `thunder_core.ir.size.SizeScope` of its expressions.

    Args:
        general: whether ops of the program may define symbols. These can be 0 or 1 in other calls, so PyTorch takes
            code paths that are valid for all sizes if it has any.

    Attributes:
        environment: PyTorch's ``ShapeEnv``, for fakes.
        hints: the value of each input symbol when the program was recorded, by name, in order.
        defined: likewise for the symbols that ops of the program define.
        watcher: the observer of the program while it runs; paused during computations with sizes.
        floats: the recorder of floats that the program computes from sizes.
        thread: the thread that records the program.
    """

    def __init__(self, *, general: bool = False, warm: bool = True) -> None:
        if warm:
            _warm_up()
        self.number = next(_numbers)
        self.general = general
        self.watcher: Watcher | None = None
        self.thread = threading.get_ident()
        self.floats: Floats | None = None

        self._source, environment, printer = _classes()
        self.environment = environment(ref(self))
        self.hints: dict[str, int] = {}
        self.defined: dict[str, int] = {}
        self._checked: list[str] = []
        self._bounds: dict[str, tuple[int, int | None]] = {}
        self._symbols: dict[Any, str] = {}
        self._symints: dict[SizeExpr, torch.SymInt] = {}
        self._sizes: dict[Any, Size] = {}
        self._texts: dict[Any, str] = {}
        self._locations: list[SourceLocation | None] = []
        self._printer = printer()

    @contextmanager
    def watched_by(self, watcher: Watcher) -> Iterator[None]:
        """Set the watcher in this context."""
        self.watcher = watcher
        try:
            yield
        finally:
            self.watcher = None

    def new(self, hint: int, path: str, bounds: tuple[int | None, int | None] = (None, None)) -> Size:
        """A symbol for a size that is ``hint`` in this call; the constant itself for 0 and 1.

        Args:
            path: its source, such as ``x.shape[0]``.
            bounds: the least and the greatest value that the user declared.
        """
        from thunder_core.pytorch_internals import DimDynamic, StrictMinMaxConstraint, ValueRanges

        lower, upper = max(bounds[0] or SMALLEST, SMALLEST), bounds[1]
        if hint < lower or (upper is not None and hint > upper):
            return hint

        constraint = None
        if bounds != (None, None):
            constraint = StrictMinMaxConstraint(
                warn_only=False, vr=ValueRanges(lower, LARGEST if upper is None else upper)
            )
        symbol = self.environment.create_symbol(hint, self._source(path=path), DimDynamic.DYNAMIC, constraint)
        self.hints[self._add(symbol, lower, upper)] = hint
        return self.size(self.environment.create_symintnode(symbol, hint=hint))

    def new_number(self, value: int, path: str) -> Size | None:
        """A symbol for a Python int that is ``value`` in this call; None if the int exceeds PyTorch's range.

        If ``value`` is at least 2, the symbol is assumed to be at least 2 in all calls, like a size, so that more facts
        follow from it. Otherwise it can be any int.
        """
        from thunder_core.pytorch_internals import DimDynamic

        if abs(value) > LARGEST:
            return None
        if value >= SMALLEST:
            size = self.new(value, path)
            self._bounds[str(size)] = (SMALLEST, LARGEST)
            return size
        symbol = self.environment.create_unspecified_symbol(value, self._source(path=path), DimDynamic.DYNAMIC)
        self.hints[self._add(symbol, -LARGEST, LARGEST)] = value
        return self.size(self.environment.create_symintnode(symbol, hint=value))

    def define(self, hint: int, *, least: int = 0, checked: bool = False) -> SizeExpr:
        """A symbol for a number that an op of the program computes, which is ``hint`` in this call.

        Args:
            least: its lower bound. Unlike sizes of inputs it may be 0 or 1 in other calls.
            checked: whether the bound is a fact that is checked at run time.
        """
        from thunder_core.pytorch_internals import DimDynamic, StrictMinMaxConstraint, ValueRanges

        source = self._source(path=f"size {len(self.defined)} of the program")
        bounds = StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(least, LARGEST))
        symbol = self.environment.create_symbol(
            hint, source, DimDynamic.DYNAMIC, bounds, positive=None, do_not_specialize_zero_one=True
        )
        name = self._add(symbol, least, LARGEST)
        self.defined[name] = hint
        if checked:
            self._checked.append(name)
        return SizeExpr(symbol, hint, self)

    def _add(self, symbol: Any, lower: int, upper: int | None) -> str:
        """Add a symbol of the environment with its bounds; returns its name."""
        name = self._symbols[symbol] = str(symbol)
        self._bounds[name] = (lower, upper)
        return name

    def _expression(self, name: str) -> Any:
        """The symbol of that name in the environment."""
        return next(symbol for symbol, own in self._symbols.items() if own == name)

    def use_hints(self) -> None:
        """Let PyTorch evaluate conditions on hints where it needs their values; the results become facts."""
        self.general = False

    def fix_defined(self) -> None:
        """Fix the symbols that ops define to their hints, by a fact for each."""
        for name in self.defined:
            size = self.symbol(name)
            assert isinstance(size, SizeExpr)
            int(size.symint)

    @property
    def values(self) -> dict[str, int]:
        """The values of all symbols when the program was recorded, by name."""
        return {**self.hints, **self.defined}

    def is_later(self, expression: Any, symbol: Any) -> bool:
        """Whether an expression has a symbol that an op defines after ``symbol`` is defined."""
        order = list(self.defined)
        known = order.index(self._symbols[symbol]) if self._symbols.get(symbol) in self.defined else -1
        names = [self._symbols.get(other) for other in expression.free_symbols]
        return any(name in self.defined and order.index(name) > known for name in names)

    def symbol(self, name: str) -> Size:
        """The symbol of that name."""
        return SizeExpr(self._expression(name), self.values[name], self)

    def locate_facts(self, count: int) -> None:
        """Record the current user line for the new facts of the environment, which has ``count`` facts now."""
        location = None if self.watcher is None else user_location()
        self._locations += [location] * (count - len(self._locations))

    # ------------------------------------------------------------ as the scope of expressions

    def symint(self, size: SizeExpr) -> torch.SymInt:
        known = self._symints.get(size)
        if known is None:
            symint = self.environment.create_symintnode(size.expression, hint=size.hint)
            assert isinstance(symint, torch.SymInt), f"{size} is a constant"
            known = self._symints[size] = symint
        return known

    def size(self, value: int | torch.SymInt) -> Size:
        if not isinstance(value, torch.SymInt):
            return value
        expression = value.node.expr
        known = self._sizes.get(expression)
        if known is None:
            known = self._sizes[expression] = self._new_size(expression, value.node.hint)
        return known

    def text_of(self, expression: Any) -> str:
        known = self._texts.get(expression)
        if known is not None:
            return known
        text = self._texts[expression] = str(self._printer.doprint(expression))
        if self.watcher is not None:  # the variables of the text are none that the program reads
            self.watcher.pause()
        try:
            eval(text, {**SIZE_NAMES, **self.values})
        except Exception as error:  # a function of PyTorch's, or one that its printer does not know
            raise SizeVariesError(f"{text} is not Python: {error}") from error
        finally:
            if self.watcher is not None:
                self.watcher.resume()
        return text

    def symbols_of(self, expression: Any) -> tuple[str, ...]:
        return tuple(sorted([self._symbols[symbol] for symbol in expression.free_symbols]))

    def value(self, size: SizeExpr, values: Mapping[str, int]) -> int:
        free = size.expression.free_symbols
        return int(size.expression.xreplace({symbol: values[self._symbols[symbol]] for symbol in free}))

    def least(self, size: SizeExpr) -> float:
        forms = {size.expression, size.expression.expand()}  # bounds of products and of sums differ
        return max(float(self.environment.bound_sympy(form).lower) for form in forms)

    def is_equal(self, one: Size, other: Size) -> bool:
        left, right = on_fakes(one), on_fakes(other)
        equations = [equal.node.expr for equal in (left == right, right == left) if isinstance(equal, torch.SymBool)]
        if not equations:
            return bool(left == right)
        return any(self.environment.replace(guard.expr) in equations for guard in self.environment.guards)

    def _new_size(self, expression: Any, hint: Any) -> Size:
        if expression.is_Integer:
            return int(expression)
        if hint is None or not expression.free_symbols <= self._symbols.keys():
            raise SizeVariesError(f"PyTorch cannot compute the size {expression} from the sizes of the inputs")
        return SizeExpr(expression, int(hint), self)

    # ------------------------------------------------------------ facts

    @property
    def fact_count(self) -> int:
        """The number of facts besides the ranges of symbols. It never decreases."""
        return len(self.environment.guards)

    def facts(self) -> list[SizeFact]:
        """The ranges of the symbols, followed by the conditions that program and compiler evaluated, in order."""
        ranges = [SizeFact(self._range(name)) for name in self.hints]
        guards = self.environment.guards
        locations = [*self._locations, *[None] * (len(guards) - len(self._locations))]
        return ranges + [
            SizeFact(self.text_of(guard.expr), location, self._constant_of(guard.expr), self.symbols_of(guard.expr))
            for guard, location in zip(guards, locations, strict=True)
        ]

    def facts_of_inputs(self) -> list[SizeFact]:
        """The facts about sizes of inputs alone."""
        return [fact for fact in self.facts() if self.defined.keys().isdisjoint(fact.symbols)]

    def facts_of_defined(self) -> dict[str, list[SizeFact]]:
        """The facts about sizes that ops define, by the last of these symbols in each."""
        order = list(self.defined)
        facts = {name: [SizeFact(self._range(name), symbols=(name,))] for name in self._checked}
        for fact in self.facts():
            names = [name for name in fact.symbols if name in self.defined]
            if names:
                facts.setdefault(max(names, key=order.index), []).append(fact)
        return facts

    def admits(self, values: Mapping[str, int]) -> bool:
        """Whether the current facts allow these values of the symbols."""
        for name, (lower, upper) in self._bounds.items():
            if not lower <= values[name] <= (LARGEST if upper is None else upper):
                return False
        numbers = {symbol: values[name] for symbol, name in self._symbols.items()}
        return all(bool(guard.expr.xreplace(numbers)) for guard in self.environment.guards)

    def constant(self, name: str) -> int | None:
        """The only value of a symbol that the facts allow; None if they allow several."""
        value = self.environment.replace(self._expression(name))
        return int(value) if value.is_Integer else None

    def _range(self, name: str) -> str:
        lower, upper = self._bounds[name]
        return f"{lower} <= {name}" if upper is None else f"{lower} <= {name} <= {upper}"

    def _constant_of(self, fact: Any) -> tuple[str, int] | None:
        names = [self._symbols[symbol] for symbol in fact.free_symbols if symbol in self._symbols]
        value = self.constant(names[0]) if len(names) == 1 and type(fact).__name__ == "Equality" else None
        return None if value is None else (names[0], value)


class _Active(threading.local):
    sizes: Sizes | None = None


_active: Final = _Active()


@contextmanager
def compiling_with(sizes: Sizes | None) -> Iterator[None]:
    """Within the block, new fake tensors may have these sizes."""
    outer, _active.sizes = _active.sizes, sizes
    general = sizes is not None and sizes.general
    try:
        with size_settings.patch(backed_size_oblivious=True) if general else nullcontext():
            yield
    finally:
        _active.sizes = outer


def active_sizes() -> Sizes | None:
    """The sizes of this thread's compilation; None if it has constant sizes only."""
    return _active.sizes


def active_environment() -> Any:
    """PyTorch's ``ShapeEnv`` of this thread's compilation; None if it has constant sizes only."""
    return None if _active.sizes is None else _active.sizes.environment


_NOTHING: Final = nullcontext()


def kernels_for_sizes(
    function: Any = None, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = MappingProxyType({})
) -> AbstractContextManager[Any]:
    """Use PyTorch's Python kernels, if there are any, for calls on fakes of which only the results are needed.

    Many C++ kernels take sizes as plain numbers, which would fix them as constants.

    Args:
        function, args, kwargs: the call, if it is one of a torch function.
    """
    constant = _active.sizes is None or returns_argument(function, args, kwargs)
    return _NOTHING if constant else EnablePythonDispatcher()


def operators_for_sizes(line: BoundSymbol) -> AbstractContextManager[Any]:
    """For recording the operators of an op, which must be those that run without symbols.

    Raises:
        RuntimeError: PyTorch would make a size of it a constant.
    """
    if _active.sizes is None:
        return nullcontext()
    if has_counted_size(line.symbol.target, line.args, line.kwargs):
        raise RuntimeError("its number of elements is an int for PyTorch")
    return preserving_symbolic_sizes(line.symbol.target, line.args, line.kwargs)


def active_symbols(names: Sequence[str]) -> list[Size]:
    """The symbols with these names of this thread's compilation."""
    return [] if _active.sizes is None else [_active.sizes.symbol(name) for name in names]


def why_constant(error: Exception) -> str:
    """The reason why a program is recorded with constant sizes, in one line."""
    text = str(getattr(error, "problem", error)).partition("\n")[0]
    location = getattr(error, "location", None) or raising_location(error)
    described = text if isinstance(error, AcquisitionError | SizeVariesError) else f"{type(error).__name__}: {text}"
    return described + at(location)
