"""Inductor's settings: as text for keys, and their names. They are read when the first region is compiled."""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import uuid
from collections.abc import Iterable
from typing import Any

from thunder_core.errors import OptionError

# Settings of compiling processes and of logging do not affect kernels.
_WITHOUT_EFFECT = ("_", "compile_threads", "compile_worker", "trace.", "worker_start_method")
_PROCESS = uuid.uuid4().hex


def settings_text() -> str:
    """Triton's version, and a hash of all settings that may affect a kernel."""
    from thunder_plugin_inductor.pytorch_internals import inductor_config

    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "none"
    # Not `config.save_config_portable`, which imports Inductor's compiler since PyTorch 2.15.
    copy = inductor_config.get_config_copy()
    settings = repr([(name, _stable(copy[name])) for name in sorted(copy) if not name.startswith(_WITHOUT_EFFECT)])
    return f"triton {triton} {hashlib.sha256(settings.encode()).hexdigest()[:16]}"


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise OptionError if Inductor does not have one of the settings, with the nearest name."""
    from thunder_plugin_inductor.pytorch_internals import inductor_config

    known = inductor_config.get_config_copy()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}?" if near else "torch._inductor.config lists them"
            raise OptionError(f"inductor_config: Inductor has no setting {name!r}", advice=(advice,))


def _stable(value: Any) -> Any:
    """The value of a setting in keys: the ``uuid`` of a pass; other objects are specific to this process."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_stable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_stable(item)) for item in value)
    if isinstance(value, dict):
        return [(repr(key), _stable(item)) for key, item in value.items()]
    if (name := getattr(value, "uuid", None)) is not None and not isinstance(value, type):
        return repr(name())
    return f"{value!r} {id(value)} in {_PROCESS}"
