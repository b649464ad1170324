"""What kernels for a CPU need besides their source, found out in the background while something else goes on.

A compiler is asked which vector instructions it knows, and PyTorch's headers are compiled once for all kernels. Both
are started by the first line for a CPU that Inductor is asked about, so that they run beside the import of Inductor,
the derivatives and the lowering. For the headers g++ 12 takes 6 s where no other process has left them on the machine;
where one has, they are found by a hash of their text, after 0.3 s.
"""

from __future__ import annotations

import contextvars
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final

from thunder_core.private_names import release
from thunder_plugin_inductor.options import InductorOptions
from thunder_plugin_inductor.vector_instructions import find_vector_instructions

_NO_KERNEL: Final = "// for the headers alone\n"


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is under way.

    Attributes:
        vectors: what `find_vector_instructions` returns.
        headers: done when kernels find them. Where they cannot be made the compiler says why for each kernel again.
    """

    vectors: Future[bool]
    headers: Future[None]


@cache
def preparation(options: InductorOptions) -> Preparation:
    """Of kernels with these options; the first call starts it.

    A process does not end before its headers are written: half a file would be taken for all of it by others.
    """
    # Imported here, although the thread needs it: an import there takes 1.2 s instead of 0.06, because after each
    # file that it reads it waits for this thread to let go of Python.
    import torch.utils.cpp_extension

    from thunder_plugin_inductor.pytorch_internals import inductor_config

    pool = ThreadPoolExecutor(1, "thunder-inductor-preparation")
    # Of this thread alone, and the other one takes them along. Those of PyTorch 2.11 are the process's: a program that
    # somebody else compiles meanwhile would be compiled with them, and the other thread would have them no longer.
    settings = options.settings() if release(torch.__version__) >= (2, 12) else {}
    with inductor_config.patch(settings):
        context = contextvars.copy_context()
    vectors = pool.submit(context.run, find_vector_instructions)
    headers = pool.submit(context.run, _precompile_headers)
    pool.shutdown(wait=False)
    return Preparation(vectors, headers)


def _precompile_headers() -> None:
    """By starting to compile a file: they are made, or found, before there is something that can be waited for."""
    from thunder_plugin_inductor.pytorch_internals import CppPythonBindingsCodeCache

    CppPythonBindingsCodeCache.load_async(_NO_KERNEL)
