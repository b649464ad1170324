"""Declarations of sizes by the option ``dynamic``, in the form of ``dynamic_shapes`` of `torch.export`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.checks.own_lookups import name_of
from thunder_core.checks.varying_sizes import DeclaredDimension, DeclaredDimensions, DeclaredSize, Kind, may_vary
from thunder_core.errors import DeclaredSizeError, OptionError, suggestion

DECLARE_IN_PYTHON: Final = (
    'declare sizes where the program is compiled: thunder.jit(f, dynamic={"x": {0: Dim("batch")}})'
)
"""The advice for declarations of sizes in a file, which cannot have them, since they are Python objects."""

_KINDS: Final[dict[str, Kind]] = {"DYNAMIC": "dynamic", "AUTO": "automatic", "STATIC": "static"}
_LEAF: Final = "a Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC, an int or None"


@dataclass(frozen=True, slots=True)
class ByKey:
    """Declarations by key: for dimensions of a tensor, or for items of a dictionary."""

    items: tuple[tuple[Any, Declared], ...]


Declared = DeclaredSize | ByKey | tuple[Any, ...] | None
"""The declaration of an argument: of a tensor by dimension, of a container by item. None means no declaration."""


@dataclass(frozen=True, slots=True)
class DeclaredSizes:
    """The declarations for the parameters of a program, the value of ``dynamic``.

    Attributes:
        parameters: pairs of the name of a parameter and its declaration.
    """

    parameters: tuple[tuple[str, Declared], ...]

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> DeclaredSizes:
        """The declarations in a mapping.

        Raises:
            OptionError: a key is not a string, a value is not a declaration, or two Dims of one name differ.
        """
        for name in values:
            if not isinstance(name, str):
                raise OptionError(f"must have names of parameters as keys, not {name!r}")
        declared = cls(tuple([(name, _read(value, name)) for name, value in values.items()]))
        by_name: dict[str, DeclaredSize] = {}
        for size in declared._sizes():
            if size.name and by_name.setdefault(size.name, size) != size:
                raise OptionError(f"has two definitions of one Dim: {by_name[size.name].text} and {size.text}")
        return declared

    @property
    def must_vary(self) -> bool:
        """Whether any size is declared as dynamic, so that it must not become a constant."""
        return any(size.kind == "dynamic" for size in self._sizes())

    def plain(self) -> dict[str, Any]:
        """The declarations as plain data, for reports."""
        return {name: _plain(tree) for name, tree in self.parameters}

    def signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """The signature of the program.

        Raises:
            OptionError: the program has no signature, or lacks a parameter with declarations.
        """
        called = function.forward if isinstance(function, torch.nn.Module) else function
        title = name_of(function)
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"dynamic declares sizes by the names of parameters, and {title} has no signature ({error})",
                advice=("compile a function with named parameters that calls it",),
            ) from error
        names = list(signature.parameters)
        for name, _ in self.parameters:
            if name not in names:
                raise OptionError(
                    f"dynamic declares sizes of {name!r}, which is not a parameter of {title}{suggestion(name, names)}",
                    advice=(f"its parameters are {', '.join(names)}" if names else "it has no parameters",),
                )
        return signature

    def dimensions(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> DeclaredDimensions:
        """The declared sizes of a call, by ``id`` of the tensor and by dimension.

        If a tensor is several arguments, its first declaration applies, unless a later one is static.

        Raises:
            DeclaredSizeError: the call contradicts the declarations: by other containers or numbers of dimensions, by a
                size out of bounds, or by different sizes for one Dim.
        """
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call of the program raises the same error
            return {}
        dimensions: dict[int, dict[int, DeclaredDimension]] = {}
        by_name: dict[str, DeclaredDimension] = {}
        for name, tree in self.parameters:
            for tensor, index, dimension in _match(arguments.get(name), tree, name):
                _check(tensor, dimension, by_name)
                of_tensor = dimensions.setdefault(id(tensor), {})
                if index not in of_tensor or dimension.declared.kind == "static":
                    of_tensor[index] = dimension
        return dimensions

    def _sizes(self) -> Iterator[DeclaredSize]:
        for _, tree in self.parameters:
            yield from _leaves(tree)


def _read(value: Any, path: str) -> Declared:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return ByKey(tuple([(key, _read(item, f"{path}[{key!r}]")) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return tuple([_read(item, f"{path}[{index}]") for index, item in enumerate(value)])
    return _size(value, path)


def _size(value: Any, path: str) -> DeclaredSize:
    """The declaration of one size. Raises OptionError if ``value`` does not declare one."""
    from torch.export import Dim

    if type(value) is int and value >= 0:
        return DeclaredSize(str(value), "static", "", value, value)
    if isinstance(value, type(Dim.AUTO)) and value.type.name in _KINDS:
        bounds = value.min or None, value.max
        arguments = _arguments("", *bounds)
        text = f"Dim.{value.type.name}" + (f"({arguments})" if arguments else "")
        return DeclaredSize(text, _KINDS[value.type.name], "", *bounds)
    if type(value) is Dim:
        name = value.__name__
        bounds = value.min or None, value.max if type(value.max) is int else None  # the default maximum is infinity
        return DeclaredSize(f"Dim({_arguments(name, *bounds)})", "dynamic", name, *bounds)
    if isinstance(value, Dim):
        raise OptionError(
            f"{path}: {value!r} is computed from another Dim, which is not supported; declare a Dim with a name: "
            "if the program requires a relation of the two sizes, it becomes a guard"
        )
    raise OptionError(f"{path} must be {_LEAF}, not {value!r}")


def _arguments(name: str, lower: int | None, upper: int | None) -> str:
    """The arguments of a Dim as source code."""
    bounds = {"min": lower, "max": upper}
    return ", ".join(
        [repr(name)] * bool(name) + [f"{key}={bound}" for key, bound in bounds.items() if bound is not None]
    )


def _leaves(tree: Declared) -> Iterator[DeclaredSize]:
    if isinstance(tree, DeclaredSize):
        yield tree
    elif tree is not None:
        for item in tree if isinstance(tree, tuple) else [item for _, item in tree.items]:
            yield from _leaves(item)


def _plain(tree: Declared) -> Any:
    if isinstance(tree, ByKey):
        return {key: _plain(item) for key, item in tree.items}
    if isinstance(tree, tuple):
        return [_plain(item) for item in tree]
    return None if tree is None else tree.text


def _match(value: Any, tree: Declared, path: str) -> Iterator[tuple[torch.Tensor, int, DeclaredDimension]]:
    """The tensor, dimension and declaration of each declared size in a value."""
    if tree is None or value is None:  # an optional argument that is omitted has no sizes
        return
    if isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        for index, declared in _dimensions(tree, len(shape), path):
            yield value, index, DeclaredDimension(f"{path}.shape[{index}]", shape[index], declared)
    elif isinstance(value, Mapping) and isinstance(tree, ByKey):
        for key, item in tree.items:
            if key not in value:
                near = suggestion(str(key), [str(known) for known in value])
                raise DeclaredSizeError(f"dynamic declares sizes of {path}[{key!r}], which the call lacks{near}")
            yield from _match(value[key], item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple) and isinstance(tree, tuple):
        if len(value) != len(tree):
            raise DeclaredSizeError(
                f"dynamic declares {len(tree)} items of {path}, which has {len(value)} in this call"
            )
        for index, item in enumerate(tree):
            yield from _match(value[index], item, f"{path}[{index}]")
    else:
        form = {ByKey: "a dictionary of declarations", tuple: "a list of declarations"}.get(type(tree), "one size")
        raise DeclaredSizeError(
            f"dynamic has {form} for {path}, which is of the type {type(value).__name__}",
            advice=("declare sizes of tensors, and of tensors in dictionaries, lists and tuples",),
        )


def _dimensions(tree: Declared, ndim: int, path: str) -> Iterator[tuple[int, DeclaredSize]]:
    """The declared dimensions of a tensor with ``ndim`` dimensions."""
    if isinstance(tree, tuple) and len(tree) != ndim:
        raise DeclaredSizeError(f"dynamic declares {len(tree)} dimensions of {path}, which has {ndim} in this call")
    if not isinstance(tree, ByKey | tuple):
        raise DeclaredSizeError(f"dynamic must have a dictionary or a list of dimensions for the tensor {path}")
    for index, declared in enumerate(tree) if isinstance(tree, tuple) else tree.items:
        if type(index) is not int or not 0 <= index < ndim:
            raise DeclaredSizeError(
                f"dynamic declares dimension {index!r} of {path}, whose dimensions are 0 to {ndim - 1} in this call"
                if ndim
                else f"dynamic declares dimension {index!r} of {path}, which has no dimensions in this call"
            )
        if declared is None:
            yield index, DeclaredSize("None", "static")
        elif isinstance(declared, DeclaredSize):
            yield index, declared
        else:
            raise DeclaredSizeError(f"dynamic must have {_LEAF} for {path}.shape[{index}]: {path} is a tensor")


def _check(tensor: torch.Tensor, dimension: DeclaredDimension, by_name: dict[str, DeclaredDimension]) -> None:
    """Raise DeclaredSizeError if a size contradicts its declaration, or an earlier size with the same Dim.

    Args:
        by_name: the first size of the call for each Dim, which is extended.
    """
    declared = dimension.declared
    if not declared.includes(dimension.size):
        raise DeclaredSizeError(
            f"{dimension.path} is {dimension.size}, and dynamic declares it as {declared.text}",
            advice=("change the declaration, if the call is right",),
        )
    if declared.kind == "dynamic" and not may_vary(tensor):
        raise DeclaredSizeError(
            f"{dimension.path} is declared as {declared.text}, but sizes of parameters and of tensor subclasses are "
            "constants",
            advice=("declare Dim.AUTO, which is a constant for a size that cannot vary",),
        )
    first = by_name.setdefault(declared.name, dimension) if declared.name else dimension
    if first.size != dimension.size:
        raise DeclaredSizeError(
            f"{first.path} is {first.size} and {dimension.path} is {dimension.size}, and dynamic declares both as "
            f"{declared.text}, which makes them equal",
            advice=("declare Dims with two names, if they may differ",),
        )
