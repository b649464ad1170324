"""Runs pytest in a forked process, in which tests can import the modules of this folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from thunder_testing import forked

PRELOADED = (*forked.PRELOADED, "pytest")
HELPERS = Path(__file__).resolve().parent
PROGRAM = "import sys, pytest; sys.exit(pytest.console_main())"


def run_pytest(
    *arguments: str, directory: Path, preloaded: Sequence[str] = PRELOADED, **variables: str
) -> subprocess.CompletedProcess[str]:
    """``python -m pytest ARGUMENTS``, with no plugins but those that the arguments name."""
    path = [HELPERS, *[Path(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]]
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(map(str, path))}  # for its workers
    return forked.run_forked(
        PROGRAM,
        *("-p", "no:cacheprovider"),
        *arguments,
        environment=os.environ | own | variables,
        directory=directory,
        path=path,
        preloaded=preloaded,
    )
