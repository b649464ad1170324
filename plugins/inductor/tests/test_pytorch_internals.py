"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import inspect
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import thunder_plugin_inductor
from thunder_core.private_names import release
from thunder_plugin_inductor.pytorch_internals import NAMES
from thunder_testing import private_names_suite
from thunder_testing.forked import run_forked


def parameters(*names: str, of: str = "") -> Callable[[Any], None]:
    """A check of the first parameters of a function, or of the method ``of`` a class."""

    def check(value: Any) -> None:
        found = tuple(inspect.signature(getattr(value, of) if of else value).parameters)
        assert found[: len(names)] == names, found

    return check


def entry(*names: str) -> Callable[[Any], None]:
    """A check of the first parameters of what is replaced."""

    def check(entry_point: Any) -> None:
        parameters(*names)(getattr(*entry_point))

    return check


def every(*checks: Callable[[Any], None]) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        for one in checks:
            one(value)

    return check


def compile_lock(lock: Any) -> None:
    taken: list[bool] = []

    def elsewhere() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[-1]:
            lock.release()

    with lock, lock:  # may be taken again by its thread, not by another one
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert taken == [False]


def tracing_context(cls: Any) -> None:
    mode = NAMES.bind("FakeTensorMode")(allow_non_fake_inputs=True)
    context = cls(mode)
    with NAMES.bind("tracing")(context):
        assert cls.try_get() is context
        assert context.fake_mode is mode
    assert cls.try_get() is not context


def fake_mode(cls: Any) -> None:
    mode = cls(allow_non_fake_inputs=True)
    assert mode.from_tensor(torch.zeros(2)).fake_mode is mode
    with mode:
        assert isinstance(torch.empty(2) + torch.ones(2), torch.Tensor)


class _Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, *args: Any) -> Any:
        raise AssertionError("the mode is active")


def disables(disable: Any) -> None:
    with _Refuses(), disable():
        torch.ones(1)


def config(module: Any) -> None:
    settings = module.get_config_copy()
    assert {"keep_output_stride", "fx_graph_cache", "epilogue_fusion", "compile_threads"} <= settings.keys()
    assert isinstance(module.triton.cudagraphs, bool)
    before = module.keep_output_stride
    with module.patch({"keep_output_stride": not before}):
        assert module.keep_output_stride is not before
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(module.keep_output_stride))
        thread.start()
        thread.join()
    assert seen == [before if release(torch.__version__) >= (2, 13) else not before]  # patches are those of one thread
    assert module.keep_output_stride is before


def compiled_graph(cls: Any) -> None:
    fields = set(cls.__annotations__)
    assert {"source_code", "constants", "torchbind_constants", "inputs_to_check"} <= fields, fields


def defers() -> None:
    assert NAMES.bind("CompiledFxGraph")._defers_input_alignment is False


def decompositions(select: Any) -> None:
    table = select()
    aten = torch.ops.aten
    for operator in (
        aten.index_copy.default,
        aten.index_add.default,
        aten.index_select.default,
    ):  # with_checked_indices
        assert callable(table[operator]), operator
    assert aten.exp.default not in table


def lowerings(module: Any) -> None:
    aten = torch.ops.aten
    assert aten.exp.default in module.lowerings
    assert aten.exp.default not in module.fallbacks
    assert aten.linalg_qr.default in module.fallbacks


def load_entry() -> None:
    parameters("path", "key", of="_load_library_inner")(NAMES.bind("CppPythonBindingsCodeCache"))


def kernel_cache(cls: Any) -> None:
    parameters("main_code", of="load_async")(cls)
    assert "{entry_func}" in cls.suffix_template
    values = {"arg_len": 1, "call_entry_func": "f()", "entry_func": "f", "extra_parse_arg": ""}
    assert "f()" in cls.suffix_template.format(**values)
    assert isinstance(cls.extra_parse_arg.format(array_len=-1), str)
    assert isinstance(cls.cache, dict)
    assert callable(cls.load_pybinding)


def kernel_name(name: Any) -> None:
    assert isinstance(name, str)
    assert name.isidentifier()


def async_compile(cls: Any) -> None:
    parameters("self", "scope", of="wait")(cls)
    parameters("self", "argtypes", "source_code", of="cpp_pybinding")(cls)
    assert isinstance(cls.use_process_pool(), bool)


def bundler(cls: Any) -> None:
    cls.begin_compile()
    try:
        bundle, _ = cls.collect()
        assert [*bundle.kernel_artifacts, *bundle.static_autotuners] == []
        cls.read_and_emit(bundle)
    finally:
        cls.end_compile()


def fields(*names: str) -> Callable[[Any], None]:
    def check(cls: Any) -> None:
        made = cls(*names)
        assert [getattr(made, name) for name in names] == [*names]

    return check


def template(entry_point: Any) -> None:
    assert isinstance(vars(entry_point.owner)[entry_point.name], staticmethod)
    pytest.importorskip("jinja2")
    assert getattr(*entry_point)("{{ one }}").render(one=1) == "1"


def stride(entry_point: Any) -> None:
    x = sympy.Symbol("x", integer=True)
    assert entry_point.value(3 * x + 1, x, None) == 3


def quotient(function: Any) -> None:
    x = sympy.Symbol("x", integer=True, nonnegative=True)
    assert function(x, 4).args == (x, 4)
    assert function(sympy.Integer(9), 4) == 2


def remainder(function: Any) -> None:
    x = sympy.Symbol("x", integer=True, nonnegative=True)
    assert function(x, 4, 8).args == (x, 4, 8)
    assert function(sympy.Integer(9), 4, 2) == 0


def threads(function: Any) -> None:
    assert function() >= 1


def takes_nothing(function: Any) -> None:
    assert not inspect.signature(function).parameters


def raised(error: Any) -> None:
    assert issubclass(error, Exception)
    with pytest.raises(error):
        raise error


def compiler(function: Any) -> None:
    try:
        found = function()
    except NAMES.bind("InvalidCxxCompiler"):
        pytest.skip("there is no C++ compiler")
    assert subprocess.run([found, "--version"], capture_output=True, check=True).stdout


def instructions(entry_point: Any) -> None:
    entry("self", "code")(entry_point)
    supported = NAMES.bind("supported_vec_isa_list")
    for isa in supported:  # no subclass overrides what the plugin replaces
        assert type(isa).check_build is vars(entry_point.owner)[entry_point.name]


def supported(instructions: Any) -> None:
    assert instructions
    assert all(isa.bit_width() > 0 and isinstance(isa.build_arch_flags(), str) and str(isa) for isa in instructions)


def processor(function: Any) -> None:
    assert all(isinstance(name, str) for name in function())


def triton(function: Any) -> None:
    assert function() in (True, False)


def decomposed(table: Any) -> None:
    x, y = torch.rand(4), torch.rand(4)
    expected = torch.nn.functional.binary_cross_entropy(x, y)
    assert torch.allclose(table[torch.ops.aten.binary_cross_entropy.default](x, y), expected)


def asserts(operator: Any) -> None:
    operator(torch.tensor(True), "never raised")
    with pytest.raises(RuntimeError, match="it is false"):
        operator(torch.tensor(False), "it is false")


def overload(cls: Any) -> None:
    assert isinstance(torch.ops.aten.copy_.default, cls)
    assert not isinstance(torch.ops.aten.copy_, cls)


CHECKS: dict[str, Callable[..., object]] = {
    "compile_lock": compile_lock,
    "TracingContext": tracing_context,
    "tracing": parameters("context"),
    "FakeTensorMode": fake_mode,
    "disable_current_modes": disables,
    "inductor_config": config,
    "compile_fx_inner": parameters("gm", "example_inputs"),
    "CompiledFxGraph": compiled_graph,
    "defers_input_alignment": defers,
    "select_decomp_table": decompositions,
    "inductor_lowering": lowerings,
    "pointwise_cat": entry("inputs", "dim"),
    "ConcatKernel": parameters("inputs", "dim", of="create"),
    "TensorBox": parameters("data"),
    "AsyncCompile": async_compile,
    "get_compile_threads": threads,
    "CppPythonBindingsCodeCache": kernel_cache,
    "ENTRY": kernel_name,
    "load_library_inner": load_entry,
    "TritonBundler": bundler,
    "TritonBundle": fields("kernel_artifacts", "static_autotuners"),
    "TritonKernelArtifact": fields("filename", "payload"),
    "TritonKernelArtifacts": fields("kernel_hash", "device", "artifacts"),
    "template_from_string": every(entry("source"), template),
    "stride_at_vec_range": every(entry("index", "var", "vec_length"), stride),
    "FloorDiv": quotient,
    "ModularIndexing": remainder,
    "get_cpp_compiler": compiler,
    "InvalidCxxCompiler": raised,
    "check_build": instructions,
    "supported_vec_isa_list": supported,
    "valid_vec_isa_list": takes_nothing,
    "x86_isa_checker": processor,
    "has_triton": triton,
    "decomposition_table": decomposed,
    "aten_assert_async": asserts,
    "OpOverload": overload,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_inductor.__file__).parent])

LAZY = """
import sys
from thunder_plugin_inductor import executor, pytorch_internals
early = [name for name in ("torch._dynamo", "torch._inductor", "sympy", "triton") if name in sys.modules]
assert not early, early
from thunder_plugin_inductor.pytorch_internals import inductor_config
assert inductor_config is sys.modules["torch._inductor.config"]
late = [name for name in ("lowering", "compile_fx", "codecache") if f"torch._inductor.{name}" in sys.modules]
assert not late, late
"""


@pytest.mark.slow
def test_a_row_imports_its_module_alone() -> None:
    """Inductor takes seconds to import; that its executor has a table of its names costs none of them."""
    done = run_forked(LAZY, preloaded=["torch"])
    assert done.returncode == 0, done.stderr[-3000:]
