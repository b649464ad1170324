"""Commands that plugins offer."""

from __future__ import annotations

PLUGIN = """
from thunder_core.plugins import CommandSpec, hookimpl


@hookimpl
def thunder_commands():
    return [CommandSpec("greet", "greeting:greet", summary="greets")]


def greet(name: str, loud: bool = False) -> None:
    \"\"\"Greet a person.\"\"\"
    print(f"hello {name}".upper() if loud else f"hello {name}")
"""


def test_a_command_of_a_plugin_runs_and_is_in_the_help(command, install):
    install("greeting", PLUGIN)
    ended = command("greet", "you", "--loud")
    assert (ended.code, ended.out) == (0, "HELLO YOU\n")
    assert "greet     Greet a person." in command("--help").out
    assert "Usage: thunder greet" in command("greet", "-h").out
    assert command("greet").code == 2


def test_a_command_that_cannot_be_imported_is_an_error(command, install):
    install("greeting", PLUGIN.replace("def greet", "def meet"))
    ended = command("greet", "you")
    assert ended.code == 1
    assert "its command greeting:greet cannot be imported" in ended.err


def test_a_command_of_an_absent_plugin_says_what_to_install(command, core_only):
    ended = command("simulate", "program.py:model", "--world-size", "2")
    assert ended.code == 1
    assert "the plugin 'distributed' of Thunder's repository offers 'simulate' and is not installed" in ended.err
