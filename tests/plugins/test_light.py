"""What importing the plugin interface, and looking for plugins, brings in. Seen in fresh interpreters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _modules(program: str) -> set[str]:
    """The modules that a program leaves imported."""
    program += "\nimport sys\nprint(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("THUNDER_PLUGINS", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "import thunder_core.plugins",
        "from thunder_core.plugins.host import host; host().records",
        "from thunder_core.plugins import ExecutorSpec; from thunder_core.plugins.host import host; "
        "host().load('core'); host().offered(ExecutorSpec)",
    ],
)
def test_authors_and_lists_wait_for_no_torch(program: str) -> None:
    assert not {"torch", "numpy", "thunder", "yaml"} & _modules(program)


def test_authors_import_no_host() -> None:
    assert "thunder_core.plugins.host" not in _modules("import thunder_core.plugins")


def test_importing_thunder_looks_for_no_plugins() -> None:
    assert not {"thunder_core.plugins.discovery", "pluggy", "pydantic"} & _modules("import thunder")
