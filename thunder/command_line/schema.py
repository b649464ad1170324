"""``thunder schema``: the JSON schema of configurations."""

from __future__ import annotations

from thunder.command_line.output import print_json


def schema() -> None:
    """Print the JSON schema of configurations.

    It knows the options of all installed plugins. Editors use it to complete and to check YAML files.
    """
    from thunder.command_line.json_schema import schema as schema_of_config

    print_json(schema_of_config())
