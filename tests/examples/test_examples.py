"""The example program runs and reports what it promises."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_compile_llama():
    command = [sys.executable, "-W", "ignore", "examples/compile_llama.py", "--layers", "2", "--sequence", "16"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for expected in ("Outputs equal eager's: yes", "def computation", "def prologue", "cache hits / misses"):
        assert expected in done.stdout
