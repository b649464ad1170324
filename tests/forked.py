"""Runs a test's program in a new process, forked from a server process that has only imported PyTorch.

A process that imports PyTorch and Dynamo first needs four seconds for that. Tests of what happens before PyTorch is
imported, or of its environment variables, start processes with `subprocess`.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

# What a forked process raises ends it like any other process.
_SERVER = """
import json
import os
import sys

import torch
import torch._dynamo

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in enumerate((os.devnull, request["out"], request["err"])):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[1:] = request["arguments"]
        exec(compile(request["program"], "<string>", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run_forked(
    program: str, *arguments: str, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``python -c PROGRAM ARGUMENTS`` does.

    Args:
        program: the text of the program.
        arguments: its ``sys.argv[1:]``.
        environment: its environment variables.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {"program": program, "arguments": arguments, "environment": dict(environment)}
        print(json.dumps(request | {"out": str(out), "err": str(err)}), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess((program, *arguments), code, out.read_text(), err.read_text())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """It ends when this process does, and with it the pipe from which it reads."""
    command = [sys.executable, "-c", _SERVER]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
