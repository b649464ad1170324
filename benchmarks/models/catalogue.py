"""Models by name: LitGPT's configurations, Hugging Face's as ``hf:gpt2``, and small programs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.models import hugging_face, lit_gpt, small
from benchmarks.models.model import BenchmarkModel, UnknownModel, native_settings

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "small-llama": ("Llama-2-7b-hf", lit_gpt.SMALL_LLAMA),
    "small-bert": ("hf:bert", hugging_face.SMALL_BERT),
}
"""Names for a model with overrides, which use the common names of settings where there is one."""


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model with random weights, on the default device.

    Raises:
        UnknownModel: there is no such model, or it has no such setting.
    """
    name = check(name)
    if name in SMALL:
        name, sizes = SMALL[name]
        return make(name, sizes | overrides)
    return _family(name).make(name, overrides)


def check(name: str) -> str:
    """Return ``name`` if there is such a model, else raise UnknownModel with the nearest name."""
    # Checked first, because this needs no imports of litgpt or transformers.
    if name in small.MODELS or name in SMALL:
        return name
    known = hugging_face.accepted() if name.startswith(hugging_face.PREFIX) else [*small_names(), *lit_gpt.names()]
    if name not in known:
        # Imported here, because the import of Thunder is part of a measured first step.
        from thunder_core.errors import suggestion

        raise UnknownModel(f"no model {name!r}{suggestion(name, known)}; --list-models lists all models")
    return name


def check_setting(name: str, setting: str, value: Any) -> None:
    """Raise UnknownModel if the model has no such setting, or if the value has the wrong type."""
    name, _ = SMALL.get(name, (name, {}))
    defaults, words = _family(name).settings(name)
    native_settings({setting: value}, words, defaults, name)


def _family(name: str) -> ModuleType:
    if name.startswith(hugging_face.PREFIX):
        return hugging_face
    return small if name in small.MODELS else lit_gpt


def small_names() -> list[str]:
    """The names of the small models."""
    return [*small.names(), *SMALL]


def listing() -> str:
    """All names by library, as text."""
    groups = {
        "small models": small_names(),
        "Hugging Face (tested; its other masked and causal language models are accepted)": hugging_face.names(),
        "LitGPT": lit_gpt.names(),
    }
    return "\n\n".join(f"{title}:\n  {', '.join(names) or 'not installed'}" for title, names in groups.items())
