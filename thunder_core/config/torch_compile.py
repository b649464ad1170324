"""What to write instead of the arguments of `torch.compile`."""

from __future__ import annotations

from typing import Any

_ADVICE = {
    "mode": "`mode` is torch.compile's; name who runs operations, and passes: executors=[...], transforms=[...]; "
    "`thunder plugins` lists them",
    "fullgraph": "`fullgraph` is torch.compile's; leave it out: what thunder.jit compiles is always one graph",
    "options": "`options` is torch.compile's; options belong to the executor: executors=[{name: {option: value}}]",
}
_EAGER_BACKENDS = ("eager", "aot_eager")


def advice_for(name: str, value: Any) -> str | None:
    """What to write instead of the argument ``name=value`` of `torch.compile`; None if it has no such argument."""
    if name != "backend":
        return _ADVICE.get(name)
    if not isinstance(value, str):
        return "`backend` is torch.compile's; an executor that fuses takes parts of a program: executors=[...]"
    chosen = "[]" if value in _EAGER_BACKENDS else f'["{value}"]'
    return f"`backend` is torch.compile's; write executors={chosen}"
