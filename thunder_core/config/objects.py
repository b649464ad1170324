"""The executors and transforms of a configuration, created from their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final
from weakref import WeakKeyDictionary

from thunder_core.config.entry import import_object, use
from thunder_core.config.problems import Problem, Trail, in_order
from thunder_core.config.resolved import Part, Resolved
from thunder_core.config.settings import Settings
from thunder_core.errors import PluginError, ThunderError, is_strict
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform, ordered
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.options import ExecutorOptions
from thunder_core.plugins.specs import ExecutorSpec
from thunder_core.plugins.table import Offered
from thunder_core.symbols.operation_names import (
    is_function_of_pytorch,
    known_names,
    matches,
    may_be_named_later,
    names_of,
)

_ADVICE = (
    "thunder.explain shows the names of a program's operations; operators of a library that is imported later are "
    "written with their namespace: 'torch.ops.mylib.*'",
)


def pattern_problems(resolved: Resolved, part: Part, executor: Executor) -> Iterator[Problem]:
    """A problem for each pattern of an executor that matches no operation.

    Patterns for libraries and packages whose operations are not known yet are no problem.

    Args:
        executor: that of `part`, with its patterns.
    """
    if not isinstance(executor, ConfiguredExecutor) or not (executor.include or executor.exclude):
        return
    names = known_names() | {name for symbol in executor.claimed_symbols or () for name in names_of(symbol)}
    for option, patterns in (("include", executor.include), ("exclude", executor.exclude)):
        for index, pattern in enumerate(patterns):
            if matches(pattern, names) or may_be_named_later(pattern) or is_function_of_pytorch(pattern):
                continue
            trail: Trail = (*part.trail, part.entry.name, option, index)
            yield resolved.problem(
                trail, f"the pattern {pattern!r} matches no operation{_hint(pattern, names)}", _ADVICE
            )


def _hint(pattern: str, names: frozenset[str]) -> str:
    """``; did you mean '*softmax*'?``: the nearest name, or the pattern with the nearest name in one of its places."""
    operators = re.match(r"(torch\.)?ops\.", pattern) is not None
    public = [name for name in names if operators or not name.startswith(("torch.ops.", "ops."))]
    if not re.search(r"(^|\.)_", pattern):
        public = [name for name in public if "._" not in name and not name.startswith("_")]
    pieces = re.split(r"([*?]+)", pattern)
    if len(pieces) == 1:
        found = _nearest_name(pattern, public)
        return f"; did you mean {found!r}?" if found else ""
    for position, piece in enumerate(pieces):
        core = piece.strip(".")
        if not core or piece[0] in "*?":
            continue
        for candidate in _near(core, _segments(public, core.count(".") + 1)):
            changed = "".join([*pieces[:position], piece.replace(core, candidate), *pieces[position + 1 :]])
            if matches(changed, names):
                return f"; did you mean {changed!r}?"
    return ""


def _nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name with the same last word, else one in the same namespace, else one with a similar last word."""
    by_word: dict[str, list[str]] = {}
    for known in sorted(names, key=lambda known: (known.count("."), known)):
        by_word.setdefault(known.rpartition(".")[2].lower(), []).append(known)
    namespace, _, word = name.rpartition(".")
    if word.lower() in by_word:
        return get_close_matches(name, by_word[word.lower()], n=1, cutoff=0.0)[0]
    siblings = [known for found in by_word.values() for known in found if known.rpartition(".")[0] == namespace]
    near = _near(name, siblings)
    if near:
        return near[0]
    near = _near(word, by_word)
    return get_close_matches(name, by_word[near[0]], n=1, cutoff=0.0)[0] if near else None


def _near(word: str, known: Iterable[str]) -> list[str]:
    """The nearest first; such in lower case if there are none."""
    words = list(known)
    return get_close_matches(word, words) or get_close_matches(word.lower(), words)


def _segments(names: Iterable[str], length: int) -> set[str]:
    """That many words in a row of dotted names."""
    found = set()
    for name in names:
        words = name.split(".")
        found |= {".".join(words[start : start + length]) for start in range(len(words) - length + 1)}
    return found


_MADE: Final[WeakKeyDictionary[Host, dict[tuple[str, Any, str], Any]]] = WeakKeyDictionary()
"""The created objects: equal options of the same specification give the same object in all programs."""


def settings_from(resolved: Resolved) -> Settings:
    """The settings for a configuration without problems.

    Raises:
        PluginError: something cannot be imported or created, and is not optional.
        TransformError: the transforms contradict each other.
    """
    left_out: list[tuple[str, str]] = []
    executors = [made for part in resolved.executors if (made := _executor(part, left_out)) is not None]
    for part in resolved.transforms:
        if not part.enabled and part.offered is not None:
            use(part.offered)  # the plugin is named all the same
    enabled = [part for part in resolved.transforms if part.enabled]
    transforms = [made for part in enabled if (made := _object(part, left_out)) is not None]
    assert resolved.front_end is not None, "a front end that is not there is a problem"
    return Settings(
        resolved.config, tuple(executors), ordered(transforms), import_object(resolved.front_end), tuple(left_out)
    )


def problems_of(resolved: Resolved) -> list[Problem]:
    """All that `settings_from` would raise for one without problems, and what has no effect, with places."""
    found: list[Problem] = []

    def tried(trail: Trail, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except ThunderError as error:
            found.append(resolved.problem(trail, error.problem, error.advice))
            return None

    executors = [(part, tried(part.trail, lambda part=part: _executor(part, []))) for part in resolved.executors]  # type: ignore[misc]
    for part, executor in executors:  # all of them are there: what they import may define operations
        if executor is not None:
            found.extend(pattern_problems(resolved, part, executor))
    enabled = [part for part in resolved.transforms if part.enabled]
    transforms = [tried(part.trail, lambda part=part: _object(part, [])) for part in enabled]  # type: ignore[misc]
    tried(("transforms",), lambda: ordered([transform for transform in transforms if transform is not None]))
    front_end = resolved.front_end
    if front_end is not None:
        tried(("front_end",), lambda: import_object(front_end))
    return found


def without_effect(resolved: Resolved) -> list[Problem]:
    """What a configuration that can be used says in vain: patterns that match no operation."""
    with_patterns = [part for part in resolved.executors if part.entry.given is not None or _has_patterns(part)]
    return in_order(problem for part in with_patterns for problem in _without_effect(resolved, part))


def _has_patterns(part: Part) -> bool:
    return isinstance(part.options, ExecutorOptions) and bool(part.options.include or part.options.exclude)


def _without_effect(resolved: Resolved, part: Part) -> list[Problem]:
    executor = _executor(part, [])
    return [] if executor is None else list(pattern_problems(resolved, part, executor))


def _object(part: Part, left_out: list[tuple[str, str]]) -> Any:
    """The executor or transform; None, and a note, if it is left out."""
    if part.entry.given is not None:
        return part.entry.given
    if part.offered is None:
        left_out.append((part.entry.name, part.left_out))
        return None
    try:
        return _made(part.offered, part)
    except PluginError as error:
        defect = error.__cause__ is not None and not isinstance(error.__cause__, ThunderError)
        if not part.options.optional or (defect and is_strict()):
            raise
        left_out.append((part.entry.name, error.problem))
        return None


def _made(offered: Offered[Any], part: Part) -> Any:
    known = _MADE.setdefault(host(), {})
    key = (offered.plugin.name, offered.spec, part.entry.text)
    return known[key] if key in known else known.setdefault(key, _make(offered, part))


def _make(offered: Offered[Any], part: Part) -> Any:
    spec = offered.spec
    kind, one = (Executor, "an Executor") if isinstance(spec, ExecutorSpec) else (Transform, "a Transform")
    what = f"the {kind.__name__.lower()} {spec.name!r} of the {offered.plugin.title}"
    factory = import_object(offered)
    try:
        made = factory(part.options)
    except FAILURES as error:
        raise _not_made(what, spec.load, error) from error
    if not isinstance(made, kind):
        raise PluginError(f"{what} is of the type {type(made).__name__}; {spec.load} must return {one}")
    if made.name != spec.name:
        raise PluginError(f"{what} calls itself {made.name!r}; both names must be the same")
    return made


def _not_made(what: str, load: str, error: BaseException) -> PluginError:
    advice: tuple[str, ...] = ("`optional: true` leaves it out where it cannot be used",)
    if isinstance(error, ThunderError):  # the plugin knows why
        return PluginError(f"{what} cannot be used: {error.problem}", advice=(*error.advice, *advice))
    return PluginError(f"{what} could not be made: {failure(error, load)}", advice=advice)


def _executor(part: Part, left_out: list[tuple[str, str]]) -> Executor | None:
    """The executor, with its patterns and its rule for declines; None, and a note, if it is left out."""
    executor: Executor | None = _object(part, left_out)
    options = part.options
    if executor is None:
        return None
    if not isinstance(options, ExecutorOptions) or not (
        options.include or options.exclude or options.on_decline != "next"
    ):
        return executor
    return ConfiguredExecutor(executor, options.include, options.exclude, options.on_decline)
