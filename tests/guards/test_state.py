"""PyTorch's modes and flags; random states outside of PyTorch."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch
from torch.overrides import TorchFunctionMode

import thunder
from thunder_core.checks.global_state import GlobalState


@contextlib.contextmanager
def setting(change, restore):
    change()
    try:
        yield
    finally:
        restore()


CASES = {
    "grad_enabled": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default_dtype": lambda: setting(
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
    ),
    "default_device": lambda: torch.device("meta"),
    "deterministic": lambda: setting(
        lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)
    ),
    "deterministic, warning only": lambda: setting(
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "matmul_precision": lambda: setting(
        lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision("highest")
    ),
    "sdpa_backends": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
}


@pytest.mark.parametrize("name", CASES)
def test_modes(observe, x, name):
    entry = observe(lambda x: x + 1, x)
    with CASES[name]():
        assert not entry.hits(x)
        assert entry.reason(x).startswith("torch ")
        inside = observe(lambda x: x + 1, x)
        assert inside.hits(x), inside.reason(x)
    assert entry.hits(x), entry.reason(x)
    assert not inside.hits(x)


def test_autocast_dtype_and_cache(observe, x):
    with torch.autocast("cpu", torch.bfloat16):
        entry = observe(lambda x: x + 1, x)
    with torch.autocast("cpu", torch.float16):
        assert not entry.hits(x)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert not entry.hits(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert entry.hits(x)


def test_fill_uninitialized_memory(observe, x):
    torch.use_deterministic_algorithms(True)
    try:
        entry = observe(lambda x: x + 1, x)
        torch.utils.deterministic.fill_uninitialized_memory = False
        assert not entry.hits(x)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)


def test_functorch_level(observe, x):
    entry = observe(lambda x: x + 1, x)
    seen = []

    def inside(row):
        seen.append(entry.prologue.why((row,), {}))
        return row

    torch.vmap(inside)(x)
    assert seen[0].startswith("torch functorch_level")


def test_function_modes_bypass(observe, x):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    entry = observe(lambda x: x + 1, x)
    assert GlobalState.current().bypass_reason() is None
    with Mode():
        assert not entry.hits(x)
        assert "Mode" in GlobalState.current().bypass_reason()
    with torch.device("meta"):
        assert GlobalState.current().bypass_reason() is None


def test_other_threads_have_their_own_modes(observe, x):
    import threading

    entry = observe(lambda x: x + 1, x)
    found = []
    with torch.no_grad():
        assert not entry.hits(x)
        thread = threading.Thread(target=lambda: found.append(entry.hits(x)))
        thread.start()
        thread.join()
    assert found == [True]


def test_random_state_of_python(observe, x):
    assert observe(lambda x: x * 2, x).random == []
    assert observe(lambda x: x * random.random(), x).random == ["random"]
    generator = random.Random(0)
    assert observe(lambda x: x * generator.random(), x).random == ["generator"]


def test_random_state_of_numpy(observe, x):
    numpy = pytest.importorskip("numpy")
    assert observe(lambda x: x * float(numpy.random.rand()), x).random == ["numpy.random"]
    generator = numpy.random.default_rng(0)
    assert observe(lambda x: x * float(generator.random()), x).random == ["generator"]
    assert observe(lambda x: x * 2 if generator is not None else x, x).random == []


def _switch(change, new, old):
    return lambda: setting(lambda: change(new), lambda: change(old))


TOLD = {
    "profiler": (lambda: torch.autograd._profiler_enabled(), torch.autograd.profiler.profile),
    "warn_always": (lambda: torch.is_warn_always_enabled(), _switch(torch.set_warn_always, True, False)),
    "autocast_dtype": (
        lambda: torch.get_autocast_dtype("cpu"),
        _switch(lambda dtype: torch.set_autocast_dtype("cpu", dtype), torch.float16, torch.bfloat16),
    ),
    "multithreading": (
        lambda: torch.autograd.is_multithreading_enabled(),
        lambda: torch.autograd.set_multithreading_enabled(False),
    ),
    "saved_tensors_hooks": (
        lambda: torch._C._autograd._saved_tensors_hooks_is_enabled(),
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here"),
    ),
    "swap_module_params": (
        lambda: torch.__future__.get_swap_module_params_on_conversion(),
        _switch(torch.__future__.set_swap_module_params_on_conversion, True, False),
    ),
    "overwrite_module_params": (
        lambda: torch.__future__.get_overwrite_module_params_on_conversion(),
        _switch(torch.__future__.set_overwrite_module_params_on_conversion, True, False),
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_functions_that_tell_a_state(x, name):
    read, changed = TOLD[name]

    def program(x):
        return x + 1, read()

    compiled = thunder.jit(program)
    before = compiled(x)[1]
    assert before == read()
    with changed():
        assert compiled(x)[1] == read() != before
    assert compiled(x)[1] == before
