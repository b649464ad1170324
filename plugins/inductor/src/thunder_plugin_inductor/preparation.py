"""Preparation of CPU kernels in the background: vector instructions, and precompiled headers.

Both are started by the first CPU operation that Inductor is queried about, so that they run in parallel with the import
of Inductor, differentiation, and lowering. The headers take g++ 12 6 s if no process has compiled them on the machine
before; otherwise they are found by a hash of their text in 0.3 s.
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
    """The running preparation.

    Attributes:
        vectors: the result of `find_vector_instructions`.
        headers: done when kernels can use them. If they cannot be compiled, each kernel reports the compiler's error.
    """

    vectors: Future[bool]
    headers: Future[None]


@cache
def preparation(options: InductorOptions) -> Preparation:
    """The preparation for kernels with these options, started by the first call.

    The process does not exit before its headers are written, because other processes would use an incomplete file.
    """
    # Imported here although only the thread needs it: an import there takes 1.2 s instead of 0.06 s, because it waits
    # for the GIL after each file.
    import torch.utils.cpp_extension

    from thunder_plugin_inductor.pytorch_internals import inductor_config

    pool = ThreadPoolExecutor(1, "thunder-inductor-preparation")
    # These settings are local to this thread, and copied to the other one. In PyTorch 2.11 they are global: a program
    # that another thread compiles meanwhile would use them, and the background thread would lose them.
    settings = options.settings() if release(torch.__version__) >= (2, 12) else {}
    with inductor_config.patch(settings):
        context = contextvars.copy_context()
    vectors = pool.submit(context.run, find_vector_instructions)
    headers = pool.submit(context.run, _precompile_headers)
    pool.shutdown(wait=False)
    return Preparation(vectors, headers)


def _precompile_headers() -> None:
    """Start the compilation of a file, which compiles or finds the headers first."""
    from thunder_plugin_inductor.pytorch_internals import CppPythonBindingsCodeCache

    CppPythonBindingsCodeCache.load_async(_NO_KERNEL)
