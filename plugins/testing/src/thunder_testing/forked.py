"""Programs that run in new processes, forked from a server process that has only imported PyTorch and Thunder.

A process needs seven seconds of CPU time to import PyTorch and what Thunder imports when it compiles first; a forked
one needs 0.05 s. It ends without the finalization of the interpreter, which took 0.2 s: exit functions run, objects and
modules are not taken apart. Tests of the end of the interpreter, of what happens before PyTorch is imported, of
environment variables that Python or PyTorch read then, of frozen objects of the garbage collector, of modules that stay
unimported, and of hashes of texts and addresses of objects, which all forked programs share, start processes with
`subprocess`, or name fewer modules for the server to import: `LIBRARIES` for tests of Thunder's own imports.
"""

from __future__ import annotations

import atexit
import copy
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from thunder_testing.pytorch_internals import DYNAMO

LIBRARIES: Final = (
    "torch",
    DYNAMO,
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "pydantic.dataclasses",
    "pydantic.json_schema",
    "numpy",
    "yaml",
)
"""PyTorch, and the libraries that Thunder imports to compile a program."""
PRELOADED: Final = (
    *LIBRARIES,
    "thunder.report",
    "thunder_frontend.record.front_end",
    "thunder.config.api",
    "thunder.compiled.module",
)
"""These, and what of Thunder compiles a program, without plugins."""

# Requests come through a socket, with the streams of the program. It runs in a child of a child: the first waits for
# the second, and the server for none, so programs can run at the same time. Exceptions are shown without the frame of
# the server, which ends with the process that started it. Its objects are frozen: a program that collects garbage would
# copy the memory of all.
_SERVER: Final = """
import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading

def serve(names):
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

listener = socket.socket(fileno=int(sys.argv[1]))
serve(sys.argv[2:])
print("ready", flush=True)

while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
    connection, _ = listener.accept()
    if os.fork():
        connection.close()
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.load(connection.makefile())
    if "modules" in request:
        listener.close()
        listener = socket.socket(fileno=streams[0])
        serve(request["modules"])
        connection.sendall(b"ready")
        connection.close()
        continue
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    listener.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    options = {"encoding": encoding, "closefd": False}
    sys.stdin = sys.__stdin__ = open(0, errors=errors or "strict", **options)
    sys.stdout = sys.__stdout__ = open(1, "w", errors=errors or "strict", **options)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", **options)
    os.chdir(request["directory"])
    script = request["script"]
    sys.argv[:] = [script or "-c", *request["arguments"]]
    sys.path[:1] = [os.path.dirname(script), *request["path"]]
    names = {"__name__": "__main__"} | ({"__file__": script} if script else {})
    code = None
    try:
        exec(compile(request["program"], script or "<string>", "exec"), names)
    except SystemExit as error:
        code = error.code
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
"""

# A command in the shell that runs a program in a process of the server, with its own streams, folder and variables.
_COMMAND: Final = """#!{python} -IS
import json
import os
import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [b"."], [0, 1, 2])
request = {{"program": {program!r}, "script": "", "arguments": sys.argv[1:], "path": []}}
request |= {{"environment": dict(os.environ), "directory": os.getcwd()}}
connection.sendall(json.dumps(request).encode())
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.recv(9) or 1))
"""


@dataclass(frozen=True)
class ForkedProgram:
    """A program that has been started."""

    program: str | Path
    arguments: tuple[str, ...]
    connection: socket.socket
    streams: tuple[Any, Any]

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; call it once. ``returncode`` is negative for a signal."""
        with self.connection:
            answer = self.connection.recv(9)
        if not answer:
            raise RuntimeError("the process that waits for a forked program has ended")
        texts = []
        for stream in self.streams:
            with stream:
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess((str(self.program), *self.arguments), int(answer), *texts)


class ForkServer:
    """A process that has imported modules, and runs programs in processes that are forked from it.

    Args:
        preloaded: names of the modules.
        python: the interpreter.
        environment: environment variables of the server. Variables that Python or PyTorch read when they start have the
            values that they have here.
    """

    def __init__(
        self,
        preloaded: Sequence[str] = PRELOADED,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.address = str(Path(self._folder.name, "socket"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()
            self._process = subprocess.Popen(
                [python, "-c", _SERVER, str(listener.fileno()), *preloaded],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=dict(environment),
                pass_fds=[listener.fileno()],
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the server of forked programs cannot import {', '.join(preloaded)}")

    def extended(self, modules: Sequence[str]) -> ForkServer:
        """A server that has imported more modules. Its process is forked from that of this one, with which it ends."""
        server = copy.copy(self)
        server.address = str(Path(self._folder.name, str(len(os.listdir(self._folder.name)))))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(server.address)
            listener.listen()
            with self._connected([listener.fileno()], {"modules": modules}) as connection:
                if not connection.recv(9):
                    raise RuntimeError(f"the server of forked programs cannot import {', '.join(modules)}")
        return server

    def close(self) -> None:
        """End the server, and those that extend it; programs that run go on."""
        self._process.communicate()
        self._folder.cleanup()

    def _connected(self, numbers: Sequence[int], request: Mapping[str, Any]) -> socket.socket:
        """A connection that has sent open files and a request."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        socket.send_fds(connection, [b"."], numbers)
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return connection

    def start(
        self,
        program: str | Path,
        *arguments: str,
        environment: Mapping[str, str] = os.environ,
        directory: Path | None = None,
        path: Sequence[Path] = (),
    ) -> ForkedProgram:
        """Start a program as ``python -c PROGRAM ARGUMENTS`` or ``python PROGRAM ARGUMENTS`` does.

        Args:
            program: the text of the program, or the path of a script.
            arguments: its ``sys.argv[1:]``.
            environment: its environment variables. ``PYTHONPATH`` has no effect on itself.
            directory: its working directory; the current one by default.
            path: folders that are put first on ``sys.path``, after the working directory or that of the script.
        """
        script = program.resolve() if isinstance(program, Path) else None
        request = {
            "program": program if script is None else script.read_text(),
            "script": "" if script is None else str(script),
            "arguments": arguments,
            "environment": dict(environment),
            "directory": str(directory or Path.cwd()),
            "path": [str(each) for each in path],
        }
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - `wait` closes them
        with open(os.devnull) as nothing:
            connection = self._connected([each.fileno() for each in (nothing, out, err)], request)
        return ForkedProgram(program, arguments, connection, (out, err))

    def write_command(self, path: Path, program: str) -> None:
        """Write an executable file that runs a program with the arguments that it gets, as `start` does.

        Its output and its exit code are those of the program.
        """
        path.write_text(_COMMAND.format(python=sys.executable, address=self.address, program=program))
        path.chmod(0o755)


def start_forked(
    program: str | Path,
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
    path: Sequence[Path] = (),
    preloaded: Sequence[str] = PRELOADED,
) -> ForkedProgram:
    """Start a program without waiting for it, in a process of a server that the programs of this process share.

    Args:
        program, arguments, environment, directory, path: those of `ForkServer.start`.
        preloaded: modules that are imported before it starts. There is a server for each tuple.
    """
    server = _server(tuple(preloaded))
    return server.start(program, *arguments, environment=environment, directory=directory, path=path)


def run_forked(
    program: str | Path,
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
    path: Sequence[Path] = (),
    preloaded: Sequence[str] = PRELOADED,
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``python -c PROGRAM ARGUMENTS`` or ``python PROGRAM ARGUMENTS`` does, and wait for its end.

    Args:
        program, arguments, environment, directory, path, preloaded: those of `start_forked`.
    """
    started = start_forked(
        program, *arguments, environment=environment, directory=directory, path=path, preloaded=preloaded
    )
    return started.wait()


def run_torchrun(
    program: str,
    *arguments: str,
    folder: Path,
    processes: int = 2,
    directory: Path | None = None,
    preloaded: Sequence[str] = PRELOADED,
) -> subprocess.CompletedProcess[str]:
    """Run ``torchrun --standalone`` with a program, all in processes of the server, and wait for its end.

    Args:
        program: the text of what each process runs, with ``arguments`` as its ``sys.argv[1:]``.
        folder: an empty folder, for the command that the processes are started with.
        processes: number of processes.
        directory, preloaded: those of `start_forked`.
    """
    command = folder / "program"
    _server(tuple(preloaded)).write_command(command, program)
    options = ("--standalone", "--nproc-per-node", str(processes), "--no-python", str(command))
    return run_forked(_TORCHRUN, *options, *arguments, directory=directory, preloaded=preloaded)


_TORCHRUN: Final = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__', alter_sys=True)"


@functools.cache
def _server(preloaded: tuple[str, ...]) -> ForkServer:
    known = len(LIBRARIES)
    if preloaded != LIBRARIES and preloaded[:known] == LIBRARIES:
        return _server(LIBRARIES).extended(preloaded[known:])
    server = ForkServer(preloaded)
    atexit.register(server.close)
    return server
