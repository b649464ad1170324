"""Inductor's settings: as text, and which there are. They are asked for when the first region is made."""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
from collections.abc import Iterable

from thunder_core.errors import OptionError


def settings_text() -> str:
    """Triton's version, and a hash of all settings that Inductor itself takes into its keys."""
    from torch._inductor import config

    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "none"
    settings = repr(sorted(config.save_config_portable().items(), key=_name))
    return f"triton {triton} {hashlib.sha256(settings.encode()).hexdigest()[:16]}"


def refuse_unknown(names: Iterable[str]) -> None:
    """Raises OptionError if Inductor does not have one of the settings, with the nearest that it has."""
    from torch._inductor import config

    known = config.get_config_copy()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}?" if near else "torch._inductor.config lists them"
            raise OptionError(f"inductor_config: Inductor has no setting {name!r}", advice=(advice,))


def _name(item: tuple[str, object]) -> str:
    return item[0]
