"""The guards of a saved program, as rows of text.

A file has the guards on arguments, on sizes and numbers, on PyTorch's modes, on the metadata of the state, and on
``training`` of modules. Everything else that a program was compiled for, such as a global variable or an attribute of a
configuration, is not there when the file is loaded: it becomes an *assumption*, a line of text.

A path is a list. Its first item is a root, ``["args", 0, "x"]``, ``["kwargs", "x"]`` or ``["state", "layer.weight"]``;
each other item is a step, ``["attribute", "name"]``, ``["item", "'key'"]``. Expected values are literals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder_core.checks import conditions
from thunder_core.checks.check import EQUAL, Check, Comparison, Condition
from thunder_core.checks.distinct_guard import DistinctGuard
from thunder_core.checks.global_state import READERS, GlobalState
from thunder_core.checks.guard import CallShape, Guard, type_name
from thunder_core.checks.prologue import Prologue, prologue_of
from thunder_core.checks.shared_memory import NonOverlappingGuard, SharedMemoryGuard
from thunder_core.checks.sizes import ComputedNumber, SizedInput, SizesGuard, VaryingNumber
from thunder_core.checks.source import (
    PATH_ERRORS,
    ArgumentSource,
    AttributeSource,
    ConstantSource,
    DirectAttributeSource,
    FunctionSource,
    ItemSource,
    KeywordSource,
    NamespaceSource,
    Source,
    StoredAttributeSource,
    StoredItemSource,
    is_argument,
)
from thunder_core.checks.tensor_guard import CLASS, ROWS, TensorGuard, size_at
from thunder_core.errors import SavedProgramError, TraceError, TraceSyntaxError, UnsupportedError
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.size import SizeExpr
from thunder_core.tracing.sizes import SizeFact
from thunder_saving.verified_source import check_condition, value_of

_DICTIONARIES: Final = ("__dict__", "_parameters", "_buffers", "_modules")
_TENSOR_CLASSES: Final = {"torch.Tensor": torch.Tensor, "torch.nn.parameter.Parameter": torch.nn.Parameter}


def class_path(kind: type) -> str:
    """The module and the name of a class."""
    return f"{module_of(kind)}.{kind.__qualname__}"


def path_of_class(value: Any) -> str:
    """The `class_path` of the class of an object."""
    return class_path(type(value))


NAMED_TYPE: Final = Condition(
    "class",
    "{path_of_class}({value})",
    EQUAL,
    lambda value, expected: f": expected an object of type {expected}, got {type_name(type(value))}",
    str,
    uses=(path_of_class,),
)
"""The class of an argument by its name: the file is loaded before the class may be imported."""

TRAINING: Final = Condition(
    "training",
    "{value}",
    Comparison("{actual} is not {expected}"),
    lambda value, expected: f": the program is for {'training' if expected else 'evaluation'} mode",
    lambda expected: f"is {expected}",
)

_OF_ARGUMENTS: Final[Mapping[str, Condition]] = {
    "value": conditions.VALUE,
    "class": NAMED_TYPE,
    "length": conditions.LENGTH,
    "stored length": conditions.STORED_LENGTH,
    "keys": conditions.KEYS,
    "string keys": conditions.STRING_KEYS,
    "stored keys": conditions.STORED_KEYS,
    "attributes": conditions.ATTRIBUTES,
    "attributes in any order": conditions.ATTRIBUTES_IN_ANY_ORDER,
    "same items": conditions.SAME_ITEMS,
    "no entry": conditions.NO_ENTRY,
    "not in dict": conditions.NOT_IN_DICT,
    "no attribute": conditions.NO_ATTRIBUTE,
    "alias": conditions.ALIAS,
    "distinct": conditions.DISTINCT,
}
"""The conditions on arguments that a file has, by name."""
_NAMES: Final = {id(condition): name for name, condition in _OF_ARGUMENTS.items()}


def literal_of(value: Any) -> str | None:
    """Python of a value that `value_of` reads back, or None."""
    if type(value) in (set, frozenset):
        items = [literal_of(item) for item in sorted(value, key=repr)]
        text = ", ".join([item for item in items if item is not None])
        return None if None in items else f"{type(value).__name__}([{text}])"
    try:
        text = LiteralPrinter().expression(value)
        value_of(text)
    except (TraceError, TraceSyntaxError):
        return None
    return text


# ---------------------------------------------------------------- paths


@dataclass
class Paths:
    """Converts between access paths and their text.

    Attributes:
        state: the names of the tensors of the state, by the ids of their paths, when a program is saved.
        tensors: likewise by the ids of the tensors.
        constants: the names of tensors that are no state of a module, with their values.
        root: the module with the state, when it is loaded.
    """

    state: Mapping[int, str] = field(default_factory=dict)
    tensors: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    root: torch.nn.Module | None = None
    _known: dict[str, Source] = field(default_factory=dict)

    def text(self, source: Source) -> list[Any] | None:
        """A path to an argument, a part of one, or a tensor of the state, as text; None for other paths."""
        if not is_argument(source):
            name = self.state.get(id(source)) or self._name_of_tensor(source)
            return None if name is None else [["state", name]]
        step: list[Any] | None = None
        match source:
            case ArgumentSource(index=index, name=name):
                return [["args", index, name]]
            case KeywordSource(name=name):
                return [["kwargs", name]]
            case StoredAttributeSource(name=name, dictionary=dictionary) if dictionary in _DICTIONARIES:
                step = ["stored", name, dictionary]
            case NamespaceSource(dictionary=dictionary) if dictionary in _DICTIONARIES:
                step = ["namespace", dictionary]
            case ItemSource(key=key) if (text := literal_of(key)) is not None:
                step = ["item", text]
            case StoredItemSource(key=key) if (text := literal_of(key)) is not None:
                step = ["stored item", text]
            case AttributeSource(name=name) if type(source) in (AttributeSource, DirectAttributeSource):
                step = ["attribute", name]
        base = None if step is None or source.parent is None else self.text(source.parent)
        return None if base is None else [*base, step]

    def _name_of_tensor(self, source: Source) -> str | None:
        try:
            return self.tensors.get(id(source.read((), {})))
        except PATH_ERRORS:
            return None

    def source(self, text: Any) -> Source:
        """The path of a text. Equal texts give the same object. Raises SavedProgramError."""
        key = repr(text)
        if key not in self._known:
            try:
                self._known[key] = self._source(text)
            except (TypeError, ValueError, IndexError, TraceSyntaxError) as error:
                raise SavedProgramError(f"{key[:100]} is not an access path: {error}") from error
        return self._known[key]

    def _source(self, text: Any) -> Source:
        *rest, step = text
        if not rest:
            match step:
                case ["args", int(index), str(name)] if index >= 0:
                    return ArgumentSource(index, name)
                case ["kwargs", str(name)]:
                    return KeywordSource(name)
                case ["state", str(name)]:
                    return self.in_module(name)
            raise ValueError(f"{step!r} is not a root")
        base = self.source(rest)
        match step:
            case ["stored", str(name), str(dictionary)] if dictionary in _DICTIONARIES:
                return StoredAttributeSource(base, name, dictionary)
            case ["namespace", str(dictionary)] if dictionary in _DICTIONARIES:
                return NamespaceSource(base, dictionary)
            case ["item", str(key)]:
                return ItemSource(base, value_of(key))
            case ["stored item", str(key)]:
                return StoredItemSource(base, value_of(key))
            case ["attribute", str(name)] if not name.startswith("__"):
                return AttributeSource(base, name)
        raise ValueError(f"{step!r} is not a step")

    def in_module(self, name: str) -> Source:
        """The path to a parameter or buffer of `root` by its dotted name, or to a constant."""
        if name in self.constants:
            return ConstantSource(self.constants[name], name)
        assert self.root is not None
        owner, _, attribute = name.rpartition(".")
        base = self.module(owner)
        module = self.root.get_submodule(owner)
        for dictionary in ("_parameters", "_buffers"):
            if attribute in vars(module)[dictionary]:
                return StoredAttributeSource(base, attribute, dictionary)
        raise ValueError(f"the state has no {name}")

    def module(self, name: str) -> Source:
        """The path to a submodule of `root`."""
        if f"module {name}" not in self._known:
            owner, _, attribute = name.rpartition(".")
            self._known[f"module {name}"] = (
                StoredAttributeSource(self.module(owner), attribute, "_modules")
                if name
                else FunctionSource(self.root, "module")
            )
        return self._known[f"module {name}"]


# ---------------------------------------------------------------- guards as text


def rows_of(guard: TensorGuard) -> list[list[str]]:
    """The metadata of a tensor, condition by condition.

    Raises:
        UnsupportedError: the tensor has a class of its own.
    """
    rows = []
    names = {id(condition): name for name, condition in ROWS.items()}
    for condition, expected in zip(guard.conditions, guard.expected, strict=True):
        if condition is CLASS:
            if expected not in _TENSOR_CLASSES.values():
                raise UnsupportedError(
                    f"{guard.source.describe()} is a {type_name(expected)}; files have programs of plain tensors only",
                    advice=("compile and save the program for plain tensors",),
                )
            rows.append(["type", class_path(expected)])
        else:
            text = literal_of(expected)
            assert text is not None, expected
            rows.append([names.get(id(condition), condition.kind), text])
    return rows


def tensor_guard(source: Source, rows: Any) -> TensorGuard:
    """The guard of `rows_of`. Raises SavedProgramError."""
    pairs: list[tuple[Condition, Any]] = []
    for name, text in rows:
        if name == "type":
            pairs.append((CLASS, _TENSOR_CLASSES[text]))
        elif name.startswith("shape["):
            pairs.append((size_at(int(name[6:-1])), value_of(text)))
        else:
            pairs.append((ROWS[name], value_of(text)))
    conditions_, expected = zip(*pairs, strict=True)
    return TensorGuard(source, conditions_, expected)


def row_of(check: Check, paths: Paths) -> dict[str, Any] | None:
    """A condition on an argument as text; None if a file cannot have it."""
    path = paths.text(check.source)
    if path is None or not is_argument(check.source):
        return None
    if check.condition is conditions.TYPE:
        return {"path": path, "condition": "class", "expected": repr(class_path(check.expected))}
    name = _NAMES.get(id(check.condition))
    if name is None:
        return None
    if isinstance(check.expected, Source):
        other = paths.text(check.expected)
        return None if other is None else {"path": path, "condition": name, "other": other}
    expected = literal_of(check.expected)
    return None if expected is None else {"path": path, "condition": name, "expected": expected}


def check_of(row: Mapping[str, Any], paths: Paths) -> Check:
    """The condition of `row_of`."""
    expected = paths.source(row["other"]) if "other" in row else value_of(row["expected"])
    return Check(paths.source(row["path"]), _OF_ARGUMENTS[row["condition"]], expected)


def training_of(guard: Guard) -> tuple[str, bool] | None:
    """The name of a submodule and the expected ``training``, for a guard on it; None for other guards."""
    if not isinstance(guard, Check) or guard.condition is not conditions.VALUE or type(guard.expected) is not bool:
        return None
    source: Source | None = guard.source
    if not isinstance(source, StoredAttributeSource) or (source.name, source.dictionary) != ("training", "__dict__"):
        return None
    names: list[str] = []
    source = source.base
    while isinstance(source, StoredAttributeSource) and source.dictionary == "_modules":
        names.insert(0, source.name)
        source = source.base
    return (".".join(names), guard.expected) if isinstance(source, FunctionSource) else None


def modes_of(state: GlobalState) -> dict[str, str]:
    """PyTorch's modes as text.

    Raises:
        UnsupportedError: hooks of all modules, or a functorch transformation, were active.
    """
    texts = {}
    for name, value in state.values.items():
        text = literal_of(value)
        if text is None or (name in ("module_hooks", "functorch_level") and value):
            raise UnsupportedError(
                f"the program was compiled under the mode {name} = {value!r}, which no file can have",
                advice=("compile and save it without this mode",),
            )
        texts[name] = text
    return texts


def sizes_row(guard: SizesGuard, paths: Paths) -> dict[str, Any]:
    """The guard of sizes and numbers that vary, as text.

    Raises:
        UnsupportedError: a size or number is not read from an argument or the state.
    """

    def path(source: Source) -> list[Any]:
        text = paths.text(source)
        if text is None:
            raise UnsupportedError(
                f"{source.describe()} varies between calls, and is no argument",
                advice=("pass it as an argument, or compile with dynamic=False",),
            )
        return text

    inputs: list[dict[str, Any]] = []
    for sized in guard.inputs:
        if isinstance(sized, ComputedNumber):
            inputs.append({"computed": sized.text, "symbol": str(sized.symbol)})
        elif isinstance(sized, VaryingNumber):
            inputs.append({"path": path(sized.source), "symbol": str(sized.symbol)})
        else:
            shape, stride = [_size_text(size) for size in sized.shape], [_size_text(size) for size in sized.stride]
            inputs.append({"path": path(sized.source), "shape": shape, "stride": stride})
    return {
        "inputs": inputs,
        "symbols": {name: list(place) for name, place in guard.symbols.items()},
        "facts": [fact.condition for fact in guard.facts],
        "exact_stride": guard.exact_stride,
        "floats": {name: path(source) for name, source in guard.floats.items()},
    }


def _size_text(size: Any) -> Any:
    return size if type(size) is int else str(size)


class _Scope:
    """Of sizes in a file, which are text."""

    number = -1

    @staticmethod
    def text_of(expression: Any) -> str:
        return str(expression)

    @staticmethod
    def symbols_of(expression: Any) -> tuple[str, ...]:
        return (str(expression),) if str(expression).isidentifier() else ()


_SCOPE: Final = _Scope()


def sizes_guard(row: Mapping[str, Any], paths: Paths) -> SizesGuard:
    """The guard of `sizes_row`. Raises SavedProgramError or TraceSyntaxError."""
    names = {*row["symbols"], *row["floats"]}
    if not all(name.isidentifier() and not name.startswith("_") for name in names):
        raise SavedProgramError("a size has no valid name")

    def condition(text: str) -> str:
        return check_condition(text, names, "sizes")

    def size(value: Any) -> Any:
        return value if type(value) is int else SizeExpr(condition(value), 0, _SCOPE)  # type: ignore[arg-type]

    inputs: list[SizedInput | VaryingNumber] = []
    for each in row["inputs"]:
        if "computed" in each:
            source = ConstantSource(each["symbol"], "a computed number")
            inputs.append(ComputedNumber(source, size(each["symbol"]), condition(each["computed"])))
        elif "symbol" in each:
            inputs.append(VaryingNumber(paths.source(each["path"]), size(each["symbol"])))
        else:
            shape, stride = tuple(map(size, each["shape"])), tuple(map(size, each["stride"]))
            inputs.append(SizedInput(paths.source(each["path"]), shape, stride))
    floats = {name: paths.source(path) for name, path in row["floats"].items()}
    first = next(iter([*[one.source for one in inputs if not isinstance(one, ComputedNumber)], *floats.values()]))
    symbols = {name: (int(position), int(index)) for name, (position, index) in row["symbols"].items()}
    facts = tuple([SizeFact(condition(text)) for text in row["facts"]])
    return SizesGuard(first, tuple(inputs), symbols, facts, bool(row["exact_stride"]), floats)


# ---------------------------------------------------------------- all guards of a program


@dataclass
class GuardTexts:
    """The guards of a prologue as text: `texts` is for the file, `assumptions` are lines for readers."""

    texts: dict[str, Any]
    assumptions: list[str]


def guard_texts(prologue: Prologue, names: Mapping[int, str], paths: Paths) -> GuardTexts:
    """The guards of a prologue as text.

    Args:
        names: the names of the inputs of the program, by the ids of their paths.
        paths: the paths of its state.

    Raises:
        UnsupportedError: a guard that cannot be left out cannot be in a file.
    """
    tensors: dict[str, Any] = {}
    checks: list[dict[str, Any]] = []
    training: dict[str, bool] = {}
    apart: list[list[str]] = []
    sharing: list[Any] = []
    distinct: list[Any] = []
    sizes: dict[str, Any] | None = None
    assumptions: list[str] = []
    for guard in prologue.guards:
        name = names.get(id(guard.source))
        flag = training_of(guard)
        row = row_of(guard, paths) if isinstance(guard, Check) else None
        if isinstance(guard, TensorGuard) and name is not None:
            path = paths.text(guard.source)
            if path is None or (path[0][0] == "state" and path[0][1] in paths.constants):
                assumptions.append(f"{guard.source.describe()}: the tensor, whose values are in the file")
            else:
                tensors[name] = rows_of(guard)
        elif isinstance(guard, SizesGuard):
            sizes = sizes_row(guard, paths)
        elif isinstance(guard, NonOverlappingGuard):
            apart.append([names[id(guard.source)], names[id(guard.expected)]])
        elif isinstance(guard, SharedMemoryGuard):
            members = [names[id(source)] for source in (guard.source, *guard.others)]
            sharing.append([members, literal_of(guard.relations)])
        elif isinstance(guard, DistinctGuard):
            known = [paths.text(source) for source in (guard.source, *guard.others)]
            found = [path for path in known if path is not None]
            distinct += [found] if len(found) > 1 else []
            if len(found) < len(known):
                assumptions.append(guard.describe())
        elif flag is not None:
            training[flag[0]] = flag[1]
        elif row is not None:
            checks.append(row)
        elif is_argument(guard.source) and getattr(guard, "condition", None) is not conditions.NOT_AMONG:
            raise UnsupportedError(
                f"the program depends on an argument in a way that no file can have: {guard.describe()}",
                advice=("pass tensors, numbers, text, and containers or dataclasses of these",),
            )
        else:
            assumptions.append(guard.describe())
    texts = {
        "positional": prologue.shape.positional,
        "keywords": list(prologue.shape.keywords),
        "modes": modes_of(prologue.state),
        "tensors": tensors,
        "checks": checks,
        "training": training,
        "sizes": sizes,
        "apart": apart,
        "sharing": sharing,
        "distinct": distinct,
    }
    return GuardTexts(texts, assumptions)


def prologue_from(
    texts: Mapping[str, Any], inputs: list[tuple[str, Source]], paths: Paths, read: Callable[[Source], Any]
) -> Prologue:
    """The prologue of `guard_texts`.

    Args:
        inputs: name and path of each input of the program.
        paths: those of the loaded state.
        read: returns the tensor of the state at a path.

    Raises:
        SavedProgramError, TraceSyntaxError: the texts are not guards.
    """
    sources = dict(inputs)
    modes = {name: value_of(text) for name, text in texts["modes"].items()}
    if modes.keys() != READERS.keys():
        raise SavedProgramError("the file has other modes of PyTorch than this version of Thunder")
    guards = {name: tensor_guard(sources[name], rows) for name, rows in texts["tensors"].items()}
    checks: list[Guard] = [check_of(row, paths) for row in texts["checks"]]
    for first, *others in [[paths.source(path) for path in group] for group in texts["distinct"]]:
        checks.append(DistinctGuard(first, tuple(others)))
    for name, flag in texts["training"].items():
        place = StoredAttributeSource(paths.module(name), "training", "__dict__")
        checks.append(Check(place, TRAINING, bool(flag)))
    sizes = None if texts["sizes"] is None else sizes_guard(texts["sizes"], paths)
    sharing = {}
    for members, relations in texts["sharing"]:
        first, *others = [sources[name] for name in members]
        sharing[tuple(members)] = SharedMemoryGuard(first, tuple(others), value_of(relations))
    return prologue_of(
        checks,
        [(name, source, _like(guards.get(name), source, read) if texts["apart"] else None) for name, source in inputs],
        guards,
        {(one, other): NonOverlappingGuard(sources[one], sources[other]) for one, other in texts["apart"]},
        sharing,
        state=GlobalState(modes),
        shape=CallShape(int(texts["positional"]), tuple(map(str, texts["keywords"]))),
        sizes=sizes,
    )


def _like(guard: TensorGuard | None, source: Source, read: Callable[[Source], Any]) -> Any:
    """A tensor with the metadata of an input; None where sizes vary, and for other objects."""
    if not is_argument(source):
        return read(source)
    if guard is None or guard.varies:
        return None
    expected = {condition.kind: value for condition, value in zip(guard.conditions, guard.expected, strict=True)}
    if "stride" not in expected:
        return None
    stride = expected["stride"][0] if ROWS["stride in use"] in guard.conditions else expected["stride"]
    return torch.empty_strided(expected["shape"], stride, dtype=expected["dtype"])
