"""Rows: the declarative form of a symbol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.symbol import CallStyle, Tag

Adapter = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[tuple[Any, ...], dict[str, Any]] | None"]
"""From a spelling's arguments to canonical ones; None if they do not fit. It must not call torch functions."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One public function or method for the row's operation.

    Attributes:
        name: dotted name ("torch.special.expit", "torch.Tensor.add").
        layouts: signatures; the first that the arguments fit is taken. Parameters are matched with the row's by name.
            One that the row lacks must have its default, otherwise the call does not fit; ``inplace=True`` means the
            row's in-place symbol; ``_stacklevel`` is ignored.
        adapter: converts arguments that layouts cannot express; used instead of them.
        implied: derived from the row's name, so that PyTorch need not have it.
    """

    name: str
    layouts: tuple[str, ...] = ()
    adapter: Adapter | None = None
    implied: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Attributes:
        name: dotted name of the function or, under ``torch.Tensor``, the method that is printed.
        layouts: signatures of the canonical call, several for overloads. Without any, arguments are not changed.
        spellings: all spellings of the operation, including those of ``name`` and ``target``.
        target: dotted name of the function that is called: ``name``, or a cheaper equivalent.
        inplace: spellings of the in-place variant; the first that exists gives its symbol.
        style: how a call is printed.
        tags, decomposition: as in `Symbol`.
    """

    name: str
    layouts: tuple[str, ...]
    spellings: tuple[Spelling, ...]
    target: str
    inplace: tuple[Spelling, ...] = ()
    style: CallStyle = CallStyle.FUNCTION
    tags: frozenset[Tag] = frozenset()
    decomposition: Callable[..., Any] | None = None


def row(
    call: str,
    *spellings: str | Spelling,
    target: str | None = None,
    inplace: str | None = None,
    method: bool = True,
    overloads: tuple[str, ...] = (),
    tags: tuple[Tag, ...] = (),
    decomposition: Callable[..., Any] | None = None,
) -> Row:
    """A row from its canonical call, ``"torch.add(input, other, *, alpha=1)"``.

    Spellings are names, with a signature where it differs from the canonical one. ``torch.`` may be left out before
    ``Tensor``, ``special`` and ``linalg``; ``F`` is ``torch.nn.functional`` and ``nn`` is ``torch._C._nn``.

    For the row's own name and for each spelling ``torch.f`` that has no signature of its own, ``Tensor.f`` and
    ``torch.f`` are spellings wherever PyTorch has them, and with a trailing underscore they are the in-place variant.
    ``method=False`` keeps all these out; operators of ``torch.ops`` and functions outside of PyTorch have none.
    ``inplace`` names in-place variants that are called otherwise, separated by `` | ``. ``overloads`` are further
    canonical signatures.
    """
    name, layouts = _read(call)
    layouts = layouts + overloads
    base = name.rpartition(".")[2]
    style = CallStyle.METHOD if name.startswith("torch.Tensor.") else CallStyle.FUNCTION
    given = [item if isinstance(item, Spelling) else Spelling(*_read(item)) for item in spellings]
    places = [Spelling(*_read(item)) for item in (inplace.split(" | ") if inplace else ())]
    preferred = f"torch.Tensor.{base}_"
    own = [Spelling(name), Spelling(expand(target or name))]
    bases = [base, *[item.name.removeprefix("torch.") for item in given if not item.layouts and not item.adapter]]
    own_of_torch = name.startswith("torch.") and not name.startswith("torch.ops.")
    bases = [item for item in bases if method and own_of_torch and "." not in item]
    implied = [Spelling(f"torch.{place}{item}", implied=True) for item in bases for place in ("Tensor.", "")]
    implied_places = [Spelling(f"{item.name}_", implied=True) for item in implied]
    return Row(
        name,
        layouts,
        _complete([*given, *own, *implied], layouts),
        expand(target or name),
        tuple(sorted(_complete([*places, *implied_places], layouts), key=lambda item: item.name != preferred)),
        style,
        frozenset(tags),
        decomposition,
    )


def attribute(name: str, *tags: Tag, also: tuple[str, ...] = ()) -> Row:
    """The row of a property of Tensor; ``also`` are functions that read it."""
    full = f"torch.Tensor.{name}"
    spellings = (Spelling(full), *(Spelling(*_read(item)) for item in also))
    return Row(full, ("input",), spellings, full, style=CallStyle.ATTRIBUTE, tags=frozenset(tags))


def _complete(spellings: list[Spelling], layouts: tuple[str, ...]) -> tuple[Spelling, ...]:
    """Spellings with the canonical signature filled in; of two with one name the first."""
    complete: dict[str, Spelling] = {}
    for spelling in spellings:
        if spelling.name not in complete:
            whole = spelling.layouts or spelling.adapter
            complete[spelling.name] = spelling if whole else Spelling(spelling.name, layouts, None, spelling.implied)
    return tuple(complete.values())


def rows(calls: str, *, tags: tuple[Tag, ...] = (), method: bool = True) -> list[Row]:
    """Rows given by their calls alone, one on each line. Other spellings follow the call, separated by `` | ``."""
    lines = (line.strip() for line in calls.splitlines())
    return [row(*line.split(" | "), tags=tags, method=method) for line in lines if line]


def expand(name: str) -> str:
    """The dotted name from the short forms that tables use."""
    for short, full in _PREFIXES:
        if name.startswith(short):
            return full + name[len(short) :]
    return name


_PREFIXES = (
    ("F.", "torch.nn.functional."),
    ("Tensor.", "torch.Tensor."),
    ("special.", "torch.special."),
    ("linalg.", "torch.linalg."),
    ("nn.", "torch._C._nn."),
)


def _read(call: str) -> tuple[str, tuple[str, ...]]:
    """``"torch.relu(input)"`` → its name and signature; a bare name has no signature."""
    name, bracket, rest = call.partition("(")
    return expand(name), ((rest.removesuffix(")"),) if bracket and rest != "...)" else ())
