"""The private names of PyTorch that this plugin uses: what for.

Most of them are below `torch._inductor`, which takes seconds to import. A row's module is imported when its name is, so
the other files import names where they imported the modules: inside of functions, or in files that these import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

if TYPE_CHECKING:  # classes that annotations name, or that are derived from
    from torch._inductor.async_compile import AsyncCompile as AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache as CppPythonBindingsCodeCache

_COMPILE = "compiling regions with Inductor"
_OPERATORS = "Inductor's choice of operators"
_KERNELS = "compiling kernels in the background"
_TRITON = "artifacts of Triton kernels"
_VECTORS = "vector instructions without trials"

ROWS: Final = (
    Row("torch._dynamo.convert_frame.compile_lock", _COMPILE),
    Row("torch._guards.TracingContext", _COMPILE),
    Row("torch._guards.tracing", _COMPILE),
    Row("torch._subclasses.fake_tensor.FakeTensorMode", _COMPILE),
    Row("torch.utils._python_dispatch._disable_current_modes", "compiling a region while a program is recorded"),
    Row("torch._inductor.config", "Inductor's settings", name="inductor_config"),
    Row("torch._inductor.compile_fx.compile_fx_inner", _COMPILE),
    Row("torch._inductor.output_code.CompiledFxGraph", "artifacts of regions"),
    Row("torch._inductor.output_code.CompiledFxGraph._defers_input_alignment", "inputs at any address",
        kind=Kind.SPELLED, since="2.13"),
    Row("torch._inductor.decomposition.select_decomp_table", _OPERATORS),
    Row("torch._inductor.lowering", _OPERATORS, name="inductor_lowering"),
    Row("torch._inductor.lowering.pointwise_cat", "concatenation of three and more", kind=Kind.ENTRY_POINT),
    Row("torch._inductor.ir.ConcatKernel", "concatenation of three and more"),
    Row("torch._inductor.ir.TensorBox", "concatenation of three and more"),
    Row("torch._inductor.async_compile.AsyncCompile", _KERNELS),
    Row("torch._inductor.async_compile.get_compile_threads", _KERNELS),
    Row("torch._inductor.codecache.CppPythonBindingsCodeCache", _KERNELS),
    # How the functions of kernels are named, and their modules after the last dot; a number may follow.
    Row("torch._inductor.codecache.CppPythonBindingsCodeCache.entry_function", _KERNELS, name="ENTRY"),
    Row("torch._inductor.codecache.CppPythonBindingsCodeCache._load_library_inner", _KERNELS,
        kind=Kind.SPELLED),
    Row("torch._inductor.triton_bundler.TritonBundler", _TRITON),
    Row("torch._inductor.codegen.common.KernelTemplate._template_from_string", "templates parsed when they are used",
        kind=Kind.ENTRY_POINT),
    Row("torch._inductor.codegen.cpp.stride_at_vec_range", "strides of indices without SymPy", kind=Kind.ENTRY_POINT),
    Row("torch.utils._sympy.functions.FloorDiv", "strides of indices without SymPy"),
    Row("torch.utils._sympy.functions.ModularIndexing", "strides of indices without SymPy"),
    Row("torch._inductor.cpp_builder.get_cpp_compiler", "the C++ compiler of Inductor"),
    Row("torch._inductor.exc.InvalidCxxCompiler", "the C++ compiler of Inductor"),
    Row("torch._inductor.cpu_vec_isa.VecISA.check_build", _VECTORS, kind=Kind.ENTRY_POINT),
    Row("torch._inductor.cpu_vec_isa.supported_vec_isa_list", _VECTORS),
    Row("torch._inductor.cpu_vec_isa.valid_vec_isa_list", _VECTORS),
    Row("torch._inductor.cpu_vec_isa.x86_isa_checker", _VECTORS),
    Row("torch.utils._triton.has_triton", "whether Triton works"),
    Row("torch._decomp.decomposition_table", "binary_cross_entropy in regions"),
    Row("torch.ops.aten._assert_async.msg", "binary_cross_entropy in regions", name="aten_assert_async"),
    Row("torch._ops.OpOverload", "writes in graphs of regions"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
