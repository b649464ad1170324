"""Runs tests of one file in a separate process, for `tests.pytorch_programs.runs`.

They talk through a socket: the process first reads the names of the tests as lines, none for all (an end that is closed
with text left to read breaks the pipe of the other), and writes lines of JSON: its id, the names, then one before and
one after each test.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import random
import socket
import sys
import traceback
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

os.environ["THUNDER_TRACEBACK"] = "full"  # an outcome depends on where an exception was raised

import torch

import thunder
from tests.pytorch_programs import other_versions
from tests.pytorch_programs.count import IN_TEST_FILES
from tests.pytorch_programs.outcome import Recorded
from tests.pytorch_programs.replacement import Compile, Replacement

COMPILERS: dict[str, Compile] = {
    "eager": lambda subject: subject,
    "thunder": lambda subject: thunder.jit(subject, executors=[]),
}


def tests_of(folder: pathlib.Path, file: str) -> dict[str, unittest.TestCase]:
    """The tests of a file by class and name. ``file`` is relative to ``folder``.

    A file in a package is imported as a module of it; any other file by its own name, since its folder may have the
    name of an installed package, as ``functorch`` has.
    """
    path = folder / file
    in_package = (path.parent / "__init__.py").exists()
    sys.path[:0] = [str(folder), str(path.parent)]  # as for a script
    sys.argv = [file]
    module = importlib.import_module(file.removesuffix(".py").replace("/", ".") if in_package else path.stem)
    vars(module).update(IN_TEST_FILES)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    return {test.id().removeprefix(module.__name__ + "."): test for test in _flat(suite)}


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestCase):
            yield each
        else:
            yield from _flat(each)


def main(folder: str, file: str, compiler: str, address: str) -> None:
    """Run the tests that are named through the socket at ``address``, in a session of processes of its own."""
    os.setsid()
    other_versions.provide()
    replacement = Replacement(COMPILERS[compiler])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        output, named = connection.makefile("w"), connection.makefile().read().splitlines()

        def tell(**line: Any) -> None:
            output.write(json.dumps(line) + "\n")
            output.flush()

        tell(process=os.getpid())
        try:
            tests = tests_of(pathlib.Path(folder), file)
        except BaseException:
            tell(not_imported=traceback.format_exc()[-2000:])
            return
        names = named or list(tests)
        tell(tests=names)
        for name in names:
            tell(test=name)
            random.seed(0)
            torch.manual_seed(0)
            before, result = replacement.compiled, Recorded()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tests[name].run(result)
            tell(**{"test": name, **result.outcome.as_dict(), "compiled": replacement.compiled - before})
