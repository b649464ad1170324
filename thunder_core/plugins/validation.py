"""Whether what a hook returned is what the manual says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from thunder_core.plugins.importing import is_target
from thunder_core.plugins.options import ExecutorOptions, TransformOptions
from thunder_core.plugins.specs import Check, ExecutorSpec, FrontEndSpec, Preset, SymbolsSpec, TransformSpec

KINDS: Final[dict[str, type[Any]]] = {
    "thunder_executors": ExecutorSpec,
    "thunder_transforms": TransformSpec,
    "thunder_symbols": SymbolsSpec,
    "thunder_front_ends": FrontEndSpec,
    "thunder_presets": Preset,
    "thunder_doctor": Check,
}
"""What each hook returns."""

_OPTIONS: Final[dict[type[Any], type[Any]]] = {ExecutorSpec: ExecutorOptions, TransformSpec: TransformOptions}
_NAME: Final = re.compile(r"[^\W\d][\w-]*")


class InvalidPlugin(Exception):
    """What a plugin offers is not valid; the message says which of its hooks is wrong, and how."""


def checked(hook: str, returned: Any, *, of_core: bool) -> tuple[Any, ...]:
    """What a hook returned as a tuple of specifications.

    Raises:
        InvalidPlugin: it is something else, or contradicts the manual.
        Exception: what a generator raises.
    """
    kind = KINDS[hook]
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | dict):
        raise InvalidPlugin(f"{hook} returned {_short(returned)}, and not a list of {kind.__name__}")
    specs = tuple(returned)
    for spec in specs:
        if not isinstance(spec, kind):
            raise InvalidPlugin(f"{hook} returned a list with {_short(spec)}, and not of {kind.__name__}")
        _check(hook, spec, of_core)
    names = [spec.name for spec in specs if not isinstance(spec, SymbolsSpec)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidPlugin(f"{hook} returned two with the name {name!r}")
    return specs


def _check(hook: str, spec: Any, of_core: bool) -> None:
    name = spec.load if isinstance(spec, SymbolsSpec) else spec.name
    what = f"{hook} returned a {type(spec).__name__} {name!r}"
    if isinstance(spec, Check):
        if not (isinstance(name, str) and name.strip()):
            raise InvalidPlugin(f"{what}, which is no name")
    elif not isinstance(spec, SymbolsSpec) and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidPlugin(f"{what}, which is no name: letters, digits, underscores and hyphens make one")
    if isinstance(spec, Preset):
        if not all(isinstance(part, str) and part for part in (spec.package, spec.file)):
            raise InvalidPlugin(f"{what} without the name of a package and of a file in it")
    elif not is_target(spec.load):
        raise InvalidPlugin(f"{what} whose load is {_short(spec.load)}, and not of the form 'package.module:attribute'")
    base = _OPTIONS.get(type(spec))
    if base is not None and not (isinstance(spec.options, type) and issubclass(spec.options, base)):
        raise InvalidPlugin(f"{what} whose options are {_short(spec.options)}, and not a subclass of {base.__name__}")
    if isinstance(spec, TransformSpec) and spec.default and not of_core:
        raise InvalidPlugin(f"{what} with default=True, which is for the core's own: what is installed runs when named")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
