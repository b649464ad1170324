"""Calls of functions and methods of `torch.jit.script` and `torch.jit.trace`.

PyTorch runs them in C++. During recording their graphs are interpreted on the program's values instead
(`thunder_plugin_torchscript.operators`): operators are recorded, conditions become checks, and reads of modules become
guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import torch

from thunder_core.checks.conditions import identity_check
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import AttributeSource, Source
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.recorder import Recorder
from thunder_plugin_torchscript import operators
from thunder_plugin_torchscript.operators import refuse
from thunder_plugin_torchscript.pytorch_internals import state_of_script

_NO_SCHEMA: Final = "(no schema)"
_CONTEXTS: Final[dict[str, Callable[[], Any]]] = {
    f"__torch__.torch.autograd.grad_mode.{manager.__name__}": manager
    for manager in (torch.no_grad, torch.enable_grad, torch.inference_mode)
}
"""Context managers of TorchScript, by the names of their classes there."""


class ScriptGraph:
    """Interprets a graph of TorchScript, each node when it is reached.

    Args:
        attribute: from the value of a module in the graph and a name to the attribute.

    Branches and loops read the values of their conditions, like Python.
    """

    def __init__(self, attribute: Callable[[Any, str], Any]) -> None:
        self._attribute = attribute
        self._values: dict[str, Any] = {}

    def run(self, graph: Any, args: Iterable[Any]) -> Any:
        """The result of a graph without calls of other functions (``inlined_graph``).

        Raises:
            UnsupportedError: a node cannot be recorded.
            Exception: an exception of a node.
        """
        for value, arg in zip(graph.inputs(), args, strict=True):
            self._values[value.debugName()] = arg
        self._run_nodes(graph.nodes())
        results = [self._values[value.debugName()] for value in graph.outputs()]
        return results[0] if len(results) == 1 else tuple(results)

    def _run_nodes(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            results = self._run_node(node)
            outputs = list(node.outputs())
            if len(outputs) == 1:
                results = (results,)
            for value, result in zip(outputs, results if outputs else (), strict=True):
                self._values[value.debugName()] = result

    def _inputs(self, node: Any) -> list[Any]:
        return [self._values[value.debugName()] for value in node.inputs()]

    def _run_node(self, node: Any) -> Any:
        """The result of a node: a value if it has one output, else one for each output."""
        kind = node.kind()
        if kind in _NODES:
            return getattr(self, _NODES[kind])(node)
        schema = node.schema()
        if schema == _NO_SCHEMA:
            raise refuse(f"has a node {kind}")
        if kind in _READS_NUMBER:
            (source,) = node.inputs()
            made_by = source.node()
            if made_by.kind() == "prim::NumToTensor":  # traced functions convert sizes to tensors and back
                return self._inputs(made_by)[0]
        return operators.call(schema, self._inputs(node))

    # ------------------------------------------------------------ nodes without a schema

    def _constant(self, node: Any) -> Any:
        return node.output().toIValue()

    def _branch(self, node: Any) -> Any:
        (condition,) = self._inputs(node)
        first, second = node.blocks()
        return _of_outputs(node, self._run_block(first if condition else second, ()))

    def _loop(self, node: Any) -> Any:
        most, condition, *carried = self._inputs(node)
        (body,) = node.blocks()
        index = 0
        while index < most and condition:
            condition, *carried = self._run_block(body, (index, *carried))
            index += 1
        return _of_outputs(node, carried)

    def _run_block(self, block: Any, args: Iterable[Any]) -> list[Any]:
        for value, arg in zip(block.inputs(), args, strict=True):
            self._values[value.debugName()] = arg
        self._run_nodes(block.nodes())
        return [self._values[value.debugName()] for value in block.outputs()]

    def _fork(self, node: Any) -> Any:
        graph = node.g("Subgraph")
        return ScriptGraph(self._attribute).run(graph, self._inputs(node))

    def _itself(self, node: Any) -> Any:
        return self._inputs(node)[0]

    def _list(self, node: Any) -> list[Any]:
        return self._inputs(node)

    def _tuple(self, node: Any) -> tuple[Any, ...]:
        if str(node.output().type()).startswith("NamedTuple"):
            raise refuse("creates a named tuple")
        return tuple(self._inputs(node))

    def _dictionary(self, node: Any) -> dict[Any, Any]:
        items = self._inputs(node)
        return dict(zip(items[::2], items[1::2], strict=True))

    def _unpacked(self, node: Any) -> Any:
        items = list(self._inputs(node)[0])
        expected = len(list(node.outputs()))
        if len(items) != expected:
            raise torch.jit.Error(f"Expected {expected} elements in a list but found {len(items)}")
        return _of_outputs(node, items)

    def _item(self, node: Any) -> Any:
        values, index = self._inputs(node)
        return values[index]

    def _nothing(self, node: Any) -> None:
        return None

    def _raise(self, node: Any) -> Any:
        raise torch.jit.Error(self._inputs(node)[0])

    def _object(self, node: Any) -> Any:
        name = str(node.output().type())
        if name not in _CONTEXTS:
            raise refuse(f"creates an object of the class {name.removeprefix('__torch__.')}")
        return SimpleNamespace(manager=_CONTEXTS[name]())

    def _enter(self, node: Any) -> Any:
        (value_,) = self._inputs(node)
        return value_.manager.__enter__()

    def _exit(self, node: Any) -> Any:
        (value_,) = self._inputs(node)
        return value_.manager.__exit__(None, None, None)

    def _get(self, node: Any) -> Any:
        (owner,) = self._inputs(node)
        name = node.s("name")
        return getattr(owner, name) if isinstance(owner, SimpleNamespace) else self._attribute(owner, name)

    def _set(self, node: Any) -> None:
        owner, value = self._inputs(node)
        name = node.s("name")
        if not isinstance(owner, SimpleNamespace):
            if isinstance(value, torch.Tensor) and value is self._attribute(owner, name):
                return  # ``self.total += x`` writes to the tensor
            raise refuse(f"assigns to the attribute `{name}` of a module")
        setattr(owner, name, value)


def _of_outputs(node: Any, values: list[Any]) -> Any:
    return values[0] if len(list(node.outputs())) == 1 else values


_READS_NUMBER: Final = frozenset({"aten::Int", "aten::IntImplicit", "aten::ScalarImplicit"})
_NODES: Final = {
    "prim::Constant": "_constant",
    "prim::If": "_branch",
    "prim::Loop": "_loop",
    "prim::fork": "_fork",
    "aten::wait": "_itself",
    "prim::unchecked_cast": "_itself",
    "prim::ListConstruct": "_list",
    "prim::TupleConstruct": "_tuple",
    "prim::DictConstruct": "_dictionary",
    "prim::ListUnpack": "_unpacked",
    "prim::TupleUnpack": "_unpacked",
    "prim::TupleIndex": "_item",
    "prim::Uninitialized": "_nothing",
    "prim::RaiseException": "_raise",
    "prim::CreateObject": "_object",
    "prim::Enter": "_enter",
    "prim::Exit": "_exit",
    "prim::GetAttr": "_get",
    "prim::SetAttr": "_set",
}
"""The methods of `ScriptGraph` for nodes that are not operators."""
_ATTRIBUTES: Final = "attributes of modules of TorchScript"
_COPIES: Final = "attributes of modules of TorchScript when they were read"


def call_function(recorder: Recorder, original: Callable[..., Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of calls of a `torch.jit.ScriptFunction`."""
    observer = recorder.mode.observer
    source = observer.path_to(function)
    if source is not None:
        observer.add_guard(identity_check(source, function))
    given = _arguments(function.schema, args, kwargs, lambda: original(function, *args, **kwargs))
    return _run(recorder, function.inlined_graph, given)


def call_method(recorder: Recorder, original: Callable[..., Any], method: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of method calls of a `torch.jit.ScriptModule`.

    Raises:
        UnsupportedError: there is no path to the module.
    """
    owner = method.owner
    source = recorder.mode.observer.visited_module(
        lambda module: isinstance(module, torch.jit.ScriptModule) and state_of_script(module) == owner
    )
    if source is None:
        raise refuse("is a method of a module without a path")
    given = _arguments(method.schema, (owner, *args), kwargs, lambda: original(method, *args, **kwargs))
    return _run(recorder, method.inlined_graph, [_Module(*source), *given[1:]])


def assign(recorder: Recorder, original: Callable[..., Any], module: Any, name: str, value: Any, /) -> None:
    """The interception of assignments to attributes of a `torch.jit.ScriptModule`.

    Raises:
        UnsupportedError: the attribute is stored in C++.
    """
    if not vars(module).get("_initializing", True) and state_of_script(module).hasattr(name):
        raise UnsupportedError(
            f"the program assigns to the attribute `{name}` of a ScriptModule",
            location=user_location(),
            advice=("assign outside of the compiled function", "or write to a buffer in place"),
        )
    original(module, name, value)


@dataclass(frozen=True)
class _Module:
    """A module as a value of a graph, with its path."""

    module: Any
    source: Source


def _run(recorder: Recorder, graph: Any, args: list[Any]) -> Any:
    known: dict[tuple[int, str], Any] = recorder.notes.setdefault(_ATTRIBUTES, {})
    copies: dict[int, Any] = recorder.notes.setdefault(_COPIES, {})

    def attribute(owner: _Module, name: str) -> Any:
        key = id(owner.module), name
        if key not in known:
            value = known[key] = _attribute(recorder.mode.observer, owner, name)
            copies[id(value)] = _copy(value)
        return known[key]

    result = ScriptGraph(attribute).run(graph, args)
    for (_, name), value in known.items():
        if isinstance(value, list | dict) and not _is_as(value, copies[id(value)]):
            raise refuse(f"changes the attribute `{name}` of a module")
    return result


def _attribute(observer: Any, owner: _Module, name: str) -> Any:
    """An attribute of a module, which is guarded."""
    module = owner.module
    with disable_current_modes(), DisableTorchFunction():
        value = getattr(module, name)
    source = AttributeSource(owner.source, name)
    if isinstance(value, torch.nn.Module):
        known = observer.visited_module(lambda other: other is value)
        return _Module(value, source if known is None else known[1])
    if not _is_data(value):
        raise refuse(f"reads the attribute `{name}` of a module, a {type(value).__name__}")
    observer.visit(value, source)
    return value


def _is_data(value: Any) -> bool:
    """Whether a value is a tensor, a plain value, or a container of these."""
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if type(value) is dict:
        return all(map(_is_data, value.values()))
    return isinstance(value, torch.Tensor) or is_plain(value)


def _arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], fail: Callable[[], Any]) -> list[Any]:
    """The arguments in the order of the schema; lists and dictionaries are copied, as in TorchScript.

    Args:
        schema: the schema of the function.
        args, kwargs: the arguments of the call.
        fail: the call itself, which raises eager's error.
    """
    given: list[Any] = []
    rest = dict(kwargs)
    if len(args) > len(schema.arguments):
        _fail(fail)
    for index, argument in enumerate(schema.arguments):
        if index < len(args):
            value = args[index]
        elif argument.name in rest:
            value = rest.pop(argument.name)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            _fail(fail)
        given.append(_converted(argument, value, fail))
    if rest:
        _fail(fail)
    return given


def _converted(argument: Any, value: Any, fail: Callable[[], Any]) -> Any:
    kind = str(argument.type)
    if kind == "Tensor" and not isinstance(value, torch.Tensor):
        _fail(fail)
    if kind == "float" and isinstance(value, int):
        return float(value)
    return _copy(value)


def _copy(value: Any) -> Any:
    if type(value) is list:
        return list(map(_copy, value))
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return value


def _is_as(value: Any, before: Any) -> bool:
    """Whether a list or a dictionary has the same tensors, and equal data, as its copy."""
    if type(value) is list:
        return len(value) == len(before) and all(map(_is_as, value, before))
    if type(value) is dict:
        return list(value) == list(before) and all(map(_is_as, value.values(), before.values()))
    return value is before or (not isinstance(value, torch.Tensor) and bool(value == before))


def _fail(call: Callable[[], Any]) -> None:
    """Raise PyTorch's error for arguments that do not match the schema.

    Raises:
        Exception: the error.
    """
    with disable_current_modes(), DisableTorchFunction():
        call()
    raise refuse("is called with arguments that do not fit its schema")
