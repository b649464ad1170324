"""Models by name: LitGPT's configurations, Hugging Face's as ``hf:gpt2``, and small programs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.models import hugging_face, lit_gpt, own
from benchmarks.models.subject import Subject, UnknownModel, translated

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "small-llama": ("Llama-2-7b-hf", lit_gpt.SMALL_LLAMA),
    "small-bert": ("hf:bert", hugging_face.SMALL_BERT),
}
"""Names for a model and overrides, in the common words where there is one."""


def make(name: str, overrides: dict[str, Any]) -> Subject:
    """The model that is called ``name``, with random weights, on the default device.

    Raises:
        UnknownModel: nothing has this name, or it has no such setting.
    """
    name = check(name)
    if name in SMALL:
        name, sizes = SMALL[name]
        return make(name, sizes | overrides)
    return _family(name).make(name, overrides)


def check(name: str) -> str:
    """``name``, if there is such a model; raises UnknownModel with the nearest name otherwise."""
    # The modules behind the others are not imported for a name that needs none of them.
    if name in own.PROGRAMS or name in SMALL:
        return name
    known = hugging_face.accepted() if name.startswith(hugging_face.PREFIX) else [*listed_here(), *lit_gpt.names()]
    if name not in known:
        # Not before: the first step of a measurement pays for importing Thunder.
        from thunder_core.plugins.nearest import suggestion

        raise UnknownModel(f"no model {name!r}{suggestion(name, known)}; --list-models shows what there is")
    return name


def check_setting(name: str, setting: str, value: Any) -> None:
    """Raise UnknownModel if the model that is called ``name`` has no such setting, or not with such a value."""
    name, _ = SMALL.get(name, (name, {}))
    defaults, words = _family(name).settings(name)
    translated({setting: value}, words, defaults, name)


def _family(name: str) -> ModuleType:
    if name.startswith(hugging_face.PREFIX):
        return hugging_face
    return own if name in own.PROGRAMS else lit_gpt


def listed_here() -> list[str]:
    """The names of the small programs."""
    return [*own.names(), *SMALL]


def listing() -> str:
    """All names, by where the model comes from."""
    groups = {
        "small programs": listed_here(),
        "Hugging Face (tried; others of its masked and causal language models are accepted)": hugging_face.names(),
        "LitGPT": lit_gpt.names(),
    }
    return "\n\n".join(f"{title}:\n  {', '.join(names) or 'not installed'}" for title, names in groups.items())
