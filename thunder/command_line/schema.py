"""``thunder schema``: the JSON schema of configurations."""

from __future__ import annotations

from typing import Annotated

import typer

from thunder.command_line.output import print_json


def schema(json: Annotated[bool, typer.Option("--json", help="Nothing: the output is JSON.")] = False) -> None:
    """Print the JSON schema of configurations.

    It knows the options of all installed plugins. Editors use it to complete and to check YAML files.
    """
    from thunder.command_line.json_schema import schema as schema_of_config

    print_json(schema_of_config())
