"""The private names of PyTorch that this plugin uses, each with its purpose.

Most of them are below `torch._inductor`, which takes seconds to import. The module of a row is imported when its name
is accessed, so other files import these names where they need them: inside of functions, or in files that are imported
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

if TYPE_CHECKING:  # classes for annotations, and base classes
    from torch._inductor.async_compile import AsyncCompile as AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache as CppPythonBindingsCodeCache

_COMPILE = "compiling regions with Inductor"
_OPERATORS = "Inductor's choice of operators"
_KERNELS = "compiling kernels in the background"
_TRITON = "artifacts of Triton kernels"
_VECTORS = "vector instructions without trials"

ROWS: Final = (
    Name("torch._dynamo.convert_frame.compile_lock", _COMPILE),
    Name("torch._guards.TracingContext", _COMPILE),
    Name("torch._guards.tracing", _COMPILE),
    Name("torch._subclasses.fake_tensor.FakeTensorMode", _COMPILE),
    Name("torch.utils._python_dispatch._disable_current_modes", "compiling a region while a program is recorded"),
    Name("torch._inductor.config", "Inductor's settings", name="inductor_config"),
    Name("torch._inductor.compile_fx.compile_fx_inner", _COMPILE),
    Name("torch._inductor.output_code.CompiledFxGraph", "artifacts of regions"),
    Name("torch._inductor.output_code.CompiledFxGraph._defers_input_alignment", "inputs at any address",
        kind=Kind.NAME_ONLY, since="2.13"),
    Name("torch._inductor.decomposition.select_decomp_table", _OPERATORS),
    Name("torch._inductor.lowering", _OPERATORS, name="inductor_lowering"),
    Name("torch._inductor.lowering.pointwise_cat", "concatenation of three and more", kind=Kind.ENTRY_POINT),
    Name("torch._inductor.ir.ConcatKernel", "concatenation of three and more"),
    Name("torch._inductor.ir.TensorBox", "concatenation of three and more"),
    Name("torch._inductor.async_compile.AsyncCompile", _KERNELS),
    Name("torch._inductor.async_compile.get_compile_threads", _KERNELS),
    Name("torch._inductor.codecache.CppPythonBindingsCodeCache", _KERNELS),
    # Names of the functions of kernels, and of their modules after the last dot; a number may follow.
    Name("torch._inductor.codecache.CppPythonBindingsCodeCache.entry_function", _KERNELS, name="ENTRY"),
    Name("torch._inductor.codecache.CppPythonBindingsCodeCache._load_library_inner", _KERNELS,
        kind=Kind.NAME_ONLY),
    Name("torch._inductor.triton_bundler.TritonBundler", _TRITON),
    *[Name(f"torch._inductor.triton_bundler.{name}", _TRITON)
      for name in ("TritonBundle", "TritonKernelArtifact", "TritonKernelArtifacts")],
    Name("torch._inductor.codegen.common.KernelTemplate._template_from_string", "templates parsed when they are used",
        kind=Kind.ENTRY_POINT),
    Name("torch._inductor.codegen.cpp.stride_at_vec_range", "strides of indices without SymPy", kind=Kind.ENTRY_POINT),
    Name("torch.utils._sympy.functions.FloorDiv", "strides of indices without SymPy"),
    Name("torch.utils._sympy.functions.ModularIndexing", "strides of indices without SymPy"),
    Name("torch._inductor.cpp_builder.get_cpp_compiler", "the C++ compiler of Inductor"),
    Name("torch._inductor.exc.InvalidCxxCompiler", "the C++ compiler of Inductor"),
    Name("torch._inductor.cpu_vec_isa.VecISA.check_build", _VECTORS, kind=Kind.ENTRY_POINT),
    Name("torch._inductor.cpu_vec_isa.supported_vec_isa_list", _VECTORS),
    Name("torch._inductor.cpu_vec_isa.valid_vec_isa_list", _VECTORS),
    Name("torch._inductor.cpu_vec_isa.x86_isa_checker", _VECTORS),
    Name("torch.utils._triton.has_triton", "whether Triton works"),
    Name("torch._decomp.decomposition_table", "binary_cross_entropy in regions"),
    Name("torch.ops.aten._assert_async.msg", "binary_cross_entropy in regions", name="aten_assert_async"),
    Name("torch._ops.OpOverload", "writes in graphs of regions"),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


PARTS_OF_LAUNCHERS: Final = {
    "collections": ("OrderedDict", "defaultdict"),
    "inspect": ("Parameter", "Signature", "_ParameterKind", "_empty"),
    "torch": ("device",),
    "torch._guards": ("CompileId",),
    "torch._inductor.remote_cache": ("RemoteCacheJsonSerde",),
    "torch._inductor.runtime.autotune_cache": ("AutotuneCache", "LocalAutotuneCache", "_LocalAutotuneCacheBackend"),
    "torch._inductor.runtime.coordinate_descent_tuner": ("CoordescTuner",),
    "torch._inductor.runtime.hints": (
        *("AttrsDescriptorWrapper", "AutotuneHint", "DeviceProperties", "HeuristicType", "ReductionHint", "TileHint"),
        *("TritonMeta",),
    ),
    "torch._inductor.runtime.static_triton_launcher": (
        "StaticallyLaunchedCudaKernel",
        "StaticallyLaunchedTritonKernel",
    ),
    "torch._inductor.runtime.triton_heuristics": (
        *("CachingAutotuner", "DebugAutotuner", "InductorConfig", "StaticTritonCompileResult", "TritonCompileResult"),
        "_ConstRepr",
    ),
    "torch._inductor.triton_bundler": ("StaticallyLaunchedAutotuner",),
    "torch.utils._ordered_set": ("OrderedSet",),
    "triton.language.core": ("constexpr", "dtype"),
    "triton.runtime.autotuner": ("Config",),
    "triton.runtime.jit": ("JITFunction", "KernelParam"),
}
"""Classes in pickled launchers of Triton kernels, by module. One that PyTorch lacks or renames is not read."""


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
