"""Configurations as YAML."""

from __future__ import annotations

from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from thunder_core.config.declared_sizes import DeclaredSizes
from thunder_core.config.document import DECLARE_IN_PYTHON
from thunder_core.config.model import ThunderConfig
from thunder_core.config.problems import Problem, refuse
from thunder_core.config.yaml_reader import add_resolvers


class _Writer(yaml.SafeDumper):
    """Puts text in quotes that this reader, or one of YAML 1.1, would take for something else."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - declared so by PyYAML
        first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists are indented below their name."""
        super().increase_indent(flow, indentless=False)

    def text(self, value: str) -> Any:
        """In quotes that hide line breaks of Unicode, which PyYAML reads as others than it writes."""
        style = '"' if any(character in value for character in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)


add_resolvers(_Writer)
_Writer.add_representer(str, _Writer.text)


_OFFER: Final = ("offer it from a plugin, and name it",)


def to_yaml(config: ThunderConfig) -> str:
    """The configuration as YAML that reads back to an equal one.

    Raises:
        ConfigError: it has executors or transforms that are Python objects, or declares sizes of arguments.
    """
    if isinstance(config.dynamic, DeclaredSizes):
        why = "declares sizes of arguments; a file has true, false or automatic only"
        refuse([Problem(None, None, "dynamic", why, (DECLARE_IN_PYTHON,))])
    for name in ("executors", "transforms"):
        entries = getattr(config, name) or ()
        refuse(
            Problem(None, None, f"{name}[{index}]", f"{entry.name!r} was made in Python; a file has names only", _OFFER)
            for index, entry in enumerate(entries)
            if entry.given is not None
        )
    values = config.model_dump(exclude_none=True)
    text: str = yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)
    return text
