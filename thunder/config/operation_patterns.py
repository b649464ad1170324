"""Patterns of operations in the options ``include`` and ``exclude`` of executors: those that match no operation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from thunder.config.problems import Problem, Trail, in_order
from thunder.config.resolve import Part, ResolvedConfig
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.executor import Executor
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


def unmatched_patterns(resolved: ResolvedConfig, executors: Iterable[Executor]) -> list[Problem]:
    """A problem for each pattern in the options of an executor that matches no operation.

    A pattern for a library or a package that is not imported yet is not a problem.

    Args:
        executors: the created executors of ``resolved``. All are imported by then, so the operations that their
            modules define are known.
    """
    parts = {part.name: part for part in resolved.parts["executors"]}
    configured = [executor for executor in executors if isinstance(executor, ConfiguredExecutor)]
    return in_order(
        problem for executor in configured for problem in _unmatched(resolved, parts[executor.name], executor)
    )


def _unmatched(resolved: ResolvedConfig, part: Part, executor: ConfiguredExecutor) -> Iterator[Problem]:
    if not (executor.include or executor.exclude):
        return
    names = known_names() | {name for symbol in executor.claimed_symbols or () for name in names_of(symbol)}
    for option, patterns in (("include", executor.include), ("exclude", executor.exclude)):
        for index, pattern in enumerate(patterns):
            if matches(pattern, names) or may_be_named_later(pattern) or is_function_of_pytorch(pattern):
                continue
            trail: Trail = (*part.trail, part.entry.name, option, index)
            text = f"the pattern {pattern!r} matches no operation{_hint(pattern, names)}"
            yield resolved.problem(trail, text, _ADVICE)


def _hint(pattern: str, names: frozenset[str]) -> str:
    """``; did you mean '*softmax*'?``: the nearest name, or the pattern with one part replaced by the nearest name."""
    operators = re.match(r"(torch\.)?ops\.", pattern) is not None
    public = [name for name in names if operators or not name.startswith(("torch.ops.", "ops."))]
    if not re.search(r"(^|\.)_", pattern):
        public = [name for name in public if "._" not in name and not name.startswith("_")]
    pieces = re.split(r"([*?]+)", pattern)
    if len(pieces) == 1:
        nearest = _nearest_name(pattern, public)
        return f"; did you mean {nearest!r}?" if nearest else ""
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
    siblings = [known for words in by_word.values() for known in words if known.rpartition(".")[0] == namespace]
    near = _near(name, siblings)
    if near:
        return near[0]
    near = _near(word, by_word)
    return get_close_matches(name, by_word[near[0]], n=1, cutoff=0.0)[0] if near else None


def _near(word: str, known: Iterable[str]) -> list[str]:
    """Similar words, the nearest first; if there are none, words similar to the lower-case word."""
    words = list(known)
    return get_close_matches(word, words) or get_close_matches(word.lower(), words)


def _segments(names: Iterable[str], length: int) -> set[str]:
    """All sequences of ``length`` consecutive words of dotted names."""
    segments = set()
    for name in names:
        words = name.split(".")
        segments |= {".".join(words[start : start + length]) for start in range(len(words) - length + 1)}
    return segments
