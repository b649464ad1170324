"""Detection of vector instructions that is faster than Inductor's."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache

import torch

from thunder_core.private_names import is_missing
from thunder_plugin_inductor.compilers import missing_compiler


@cache
def find_vector_instructions() -> bool:
    """Set Inductor's vector instructions; returns whether that was possible without test compilations.

    Without caches Inductor compiles and loads up to nine programs, which takes longer than compiling the kernels of a
    small model. This is unnecessary if PyTorch itself uses the best instructions of the processor, and the compiler has
    the options for them. Otherwise Inductor runs its tests.
    """
    from thunder_plugin_inductor.pytorch_internals import (
        check_build,
        get_cpp_compiler,
        supported_vec_isa_list,
        valid_vec_isa_list,
        x86_isa_checker,
    )

    used = (check_build, get_cpp_compiler, supported_vec_isa_list, valid_vec_isa_list, x86_isa_checker)
    if any(map(is_missing, used)):  # in other versions, Inductor runs its tests
        return False
    if sys.platform != "linux" or platform.machine() != "x86_64" or missing_compiler("cpu") is not None:
        return False
    known = x86_isa_checker()
    widths = [isa.bit_width() for isa in supported_vec_isa_list if set(str(isa).split()).issubset(known)]
    if {"AVX512": 512, "AVX2": 256}.get(torch.backends.cpu.get_cpu_capability()) != max(widths, default=0):
        return False
    compiler = get_cpp_compiler()

    @cache
    def known_to_compiler(flags: str) -> bool:
        command = [compiler, *flags.split(), "-fsyntax-only", "-x", "c++", os.devnull]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    trial = check_build.value
    try:
        setattr(check_build.owner, check_build.name, lambda self, code: known_to_compiler(self.build_arch_flags()))
        return bool(valid_vec_isa_list())
    finally:
        setattr(check_build.owner, check_build.name, trial)
