"""Sizes of arguments that the option ``dynamic`` declares, in the form of `torch.export`'s ``dynamic_shapes``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.acquire.input_sizes import DeclaredPlace, DeclaredSize, InputSizes, Kind, Places
from thunder_core.errors import DeclaredSizeError, OptionError
from thunder_core.plugins.nearest import suggestion

_KINDS: Final[dict[str, Kind]] = {"DYNAMIC": "dynamic", "AUTO": "automatic", "STATIC": "static"}
_LEAF: Final = "a Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC, an int or None"


@dataclass(frozen=True, slots=True)
class ByKey:
    """Declarations by key: of a tensor's dimensions, or of the items of a dictionary."""

    items: tuple[tuple[Any, Declared], ...]


Declared = DeclaredSize | ByKey | tuple[Any, ...] | None
"""What is declared of an argument: of a tensor by dimension, of a container by item. None declares nothing."""


@dataclass(frozen=True, slots=True)
class DeclaredSizes:
    """What a mapping says that ``dynamic`` is.

    Attributes:
        parameters: by name.
    """

    parameters: tuple[tuple[str, Declared], ...]

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> DeclaredSizes:
        """What the mapping declares. Raises OptionError for anything else, and for Dims computed from others."""
        for name in values:
            if not isinstance(name, str):
                raise OptionError(f"must have names of parameters as its keys, not {name!r}")
        read = cls(tuple([(name, _read(value, name)) for name, value in values.items()]))
        named: dict[str, DeclaredSize] = {}
        for size in _leaves(tuple([tree for _, tree in read.parameters])):
            if size.name and named.setdefault(size.name, size) != size:
                raise OptionError(f"has two definitions of one Dim: {named[size.name].text} and {size.text}")
        return read

    @property
    def must_vary(self) -> bool:
        """Whether it is an error where some of the sizes are constants."""
        return any(size.kind == "dynamic" for size in _leaves(tuple([tree for _, tree in self.parameters])))

    def plain(self) -> dict[str, Any]:
        """As plain data, for reports."""
        return {name: _plain(tree) for name, tree in self.parameters}

    def signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """The parameters of the program. Raises OptionError where it has none of a name that is declared."""
        called = function.forward if isinstance(function, torch.nn.Module) else function
        title = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"dynamic declares sizes by the names of parameters, and {title} does not tell them ({error})",
                advice=("compile a function with named parameters that calls it",),
            ) from error
        known = list(signature.parameters)
        for name, _ in self.parameters:
            if name not in known:
                raise OptionError(
                    f"dynamic declares sizes of {name!r}, which is no parameter of {title}{suggestion(name, known)}",
                    advice=(f"its parameters are {', '.join(known) or 'none'}",),
                )
        return signature

    def places(self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Places:
        """The declared sizes of a call.

        Raises:
            DeclaredSizeError: the call is not as it was declared: other containers, other numbers of dimensions, sizes
                out of bounds, or different ones where the same Dim is declared.
        """
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the program raises it itself
            return {}
        found: dict[int, dict[int, DeclaredPlace]] = {}
        named: dict[str, DeclaredPlace] = {}
        for name, tree in self.parameters:
            for tensor, index, place in _match(arguments.get(name), tree, name):
                _check(tensor, place, named)
                known = found.setdefault(id(tensor), {})
                if index not in known or place.declared.kind == "static":
                    known[index] = place
        return found


def _read(value: Any, place: str) -> Declared:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return ByKey(tuple([(key, _read(item, f"{place}[{key!r}]")) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return tuple([_read(item, f"{place}[{index}]") for index, item in enumerate(value)])
    return _size(value, place)


def _size(value: Any, place: str) -> DeclaredSize:
    """What ``value`` declares. Raises OptionError for what declares nothing."""
    from torch.export import Dim

    if type(value) is int and value >= 0:
        return DeclaredSize(str(value), "static", "", value, value)
    if isinstance(value, type(Dim.AUTO)) and value.type.name in _KINDS:
        bounds = value.min or None, value.max
        arguments = _arguments("", *bounds)
        text = f"Dim.{value.type.name}" + (f"({arguments})" if arguments else "")
        return DeclaredSize(text, _KINDS[value.type.name], "", *bounds)
    if type(value) is Dim:
        name, bounds = value.__name__, (value.min or None, value.max if type(value.max) is int else None)  # or infinity
        return DeclaredSize(f"Dim({_arguments(name, *bounds)})", "dynamic", name, *bounds)
    if isinstance(value, Dim):
        raise OptionError(
            f"{place}: {value!r} is computed from another Dim, which is not supported; declare a Dim of its own: "
            "what the program needs of the two becomes a guard"
        )
    raise OptionError(f"{place} must be {_LEAF}, not {value!r}")


def _arguments(name: str, lower: int | None, upper: int | None) -> str:
    """The arguments of a Dim, as the user wrote them."""
    given = {"min": lower, "max": upper}
    return ", ".join(
        [repr(name)] * bool(name) + [f"{key}={bound}" for key, bound in given.items() if bound is not None]
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


def _match(value: Any, tree: Declared, place: str) -> Iterator[tuple[torch.Tensor, int, DeclaredPlace]]:
    """The tensors in a value of which sizes are declared, with each dimension."""
    if tree is None or value is None:  # an optional argument that is left out has no sizes
        return
    if isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        for index, declared in _dimensions(tree, len(shape), place):
            yield value, index, DeclaredPlace(f"{place}.shape[{index}]", shape[index], declared)
    elif isinstance(value, Mapping) and isinstance(tree, ByKey):
        for key, item in tree.items:
            if key not in value:
                near = suggestion(str(key), [str(known) for known in value])
                raise DeclaredSizeError(
                    f"dynamic declares sizes of {place}[{key!r}], which the call does not have{near}"
                )
            yield from _match(value[key], item, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple) and isinstance(tree, tuple):
        if len(value) != len(tree):
            raise DeclaredSizeError(
                f"dynamic declares {len(tree)} items of {place}, which has {len(value)} in this call"
            )
        for index, item in enumerate(tree):
            yield from _match(value[index], item, f"{place}[{index}]")
    else:
        given = {ByKey: "a dictionary of declarations", tuple: "a list of declarations"}.get(type(tree), "one size")
        raise DeclaredSizeError(
            f"dynamic has {given} for {place}, which is of the type {type(value).__name__}",
            advice=("declare sizes of tensors, and of tensors in dictionaries, lists and tuples",),
        )


def _dimensions(tree: Declared, ndim: int, place: str) -> Iterator[tuple[int, DeclaredSize]]:
    """What is declared of each dimension of a tensor."""
    if isinstance(tree, tuple) and len(tree) != ndim:
        raise DeclaredSizeError(f"dynamic declares {len(tree)} dimensions of {place}, which has {ndim} in this call")
    if not isinstance(tree, ByKey | tuple):
        raise DeclaredSizeError(f"dynamic must have a dictionary or a list of dimensions for the tensor {place}")
    for index, declared in enumerate(tree) if isinstance(tree, tuple) else tree.items:
        if type(index) is not int or not 0 <= index < ndim:
            raise DeclaredSizeError(
                f"dynamic declares dimension {index!r} of {place}, whose dimensions are 0 to {ndim - 1} in this call"
                if ndim
                else f"dynamic declares dimension {index!r} of {place}, which has no dimensions in this call"
            )
        if declared is None:
            yield index, DeclaredSize("None", "static")
        elif isinstance(declared, DeclaredSize):
            yield index, declared
        else:
            raise DeclaredSizeError(f"dynamic must have {_LEAF} for {place}.shape[{index}]: {place} is a tensor")


def _check(tensor: torch.Tensor, place: DeclaredPlace, named: dict[str, DeclaredPlace]) -> None:
    """Raise DeclaredSizeError for a size that contradicts its declaration, or the one of the same name before."""
    declared = place.declared
    if not declared.includes(place.size):
        raise DeclaredSizeError(
            f"{place.place} is {place.size}, and dynamic declares it as {declared.text}",
            advice=("change the declaration, if the call is right",),
        )
    if declared.kind == "dynamic" and not InputSizes.may_vary(tensor):
        raise DeclaredSizeError(
            f"{place.place} is declared as {declared.text}, and sizes of parameters and of subclasses of tensors do "
            "not vary",
            advice=("declare Dim.AUTO: it is a constant where it cannot vary",),
        )
    first = named.setdefault(declared.name, place) if declared.name else place
    if first.size != place.size:
        raise DeclaredSizeError(
            f"{first.place} is {first.size} and {place.place} is {place.size}, and dynamic declares both as "
            f"{declared.text}, which makes them equal",
            advice=("declare Dims with two names, if they may differ",),
        )
