"""The private names of PyTorch that Thunder uses or replaces, each with the feature that needs it and its versions.

All other files import these names from here: ``from thunder_core.pytorch_internals import FakeTensor``. Each private
name needs a row here and a check in ``tests/test_pytorch_internals.py``. A name that the installed PyTorch lacks is
replaced by a placeholder, which raises an exception when it is used (`thunder_core.private_names`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

if TYPE_CHECKING:  # classes that annotations or base classes refer to
    from torch._C import DisableTorchFunction as DisableTorchFunction
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

_RECORD = "recording programs"
_SIZES = "sizes that vary between the calls of a compiled program"
_GUARD = "detecting that a setting of PyTorch changed between calls"
_KERNELS = "detecting that the choice of attention kernels changed between calls"
_FUNCTORCH = "programs under transformations of torch.func"
_BATCHING = "torch.vmap in compiled programs, of sizes that vary between calls"
_SAVED_HOOKS = "saved-tensor hooks around compiled programs"
_BACKWARD = "backward of compiled programs"
_CHECKPOINT = "torch.utils.checkpoint in compiled programs"
_MODULE_HOOKS = "backward hooks of modules in compiled programs"
_SUBCLASSES = "tensor subclasses in compiled programs"
_SCRIPT = "TorchScript in compiled programs"
_ATTENTION = "PyTorch's attention modules in compiled programs"
_TRACERS = "torch.jit.trace and torch.fx.symbolic_trace of compiled programs"
_DISABLED = "torch.compiler.disable in compiled programs"
_SHARED = "arguments that share memory"
_KERNELS_IN_PYTHON = "operators whose kernels are functions of Python"
_MEMORY = "memory for tensors of the meta device"
_OPERATORS = "PyTorch's operators in traces"

ROWS: Final = (
    # Fake tensors: shapes, dtypes, strides and aliasing of every recorded call.
    Name("torch._subclasses.fake_tensor.FakeTensor", _RECORD),
    Name("torch._subclasses.fake_tensor.FakeTensorMode", _RECORD),
    Name("torch._subclasses.fake_tensor.DataDependentOutputException", "errors about unknown values"),
    Name("torch._subclasses.fake_tensor.DynamicOutputShapeException", "errors about unknown shapes"),
    Name("torch._subclasses.fake_tensor.UnsupportedFakeTensorException", "errors about tensors without a fake tensor"),
    Name("torch._subclasses.fake_tensor.UnsupportedOperatorException", "errors about operators without a fake kernel"),
    Name("torch._subclasses.fake_tensor", "silencing PyTorch's log of calls that fail on fake tensors",
        kind=Kind.NAME_ONLY),
    # Sizes that vary between calls.
    Name("torch.fx.experimental.symbolic_shapes.ShapeEnv", _SIZES),
    Name("torch.fx.experimental.symbolic_shapes.DimDynamic", _SIZES),
    Name("torch.fx.experimental.symbolic_shapes.StrictMinMaxConstraint", _SIZES),
    Name("torch._guards.Source", _SIZES, name="ShapeSource"),
    Name("torch._guards.GuardSource", _SIZES),
    Name("torch.utils._sympy.printers.PythonPrinter", _SIZES),
    Name("torch._C._EnablePythonDispatcher", _SIZES),
    Name("torch.fx.experimental._config", "sizes that depend on values of tensors", name="size_settings"),
    Name("torch.utils._sympy.value_ranges.ValueRanges", _SIZES),
    # Torch-function and torch-dispatch modes, which record the calls of the program.
    Name("torch._C.DisableTorchFunction", _RECORD),
    Name("torch._C.DisableTorchFunctionSubclass", _RECORD),
    Name("torch._C._EnableTorchFunction", "recording the calls of derivatives, rewrites and patterns"),
    Name("torch._C._disabled_torch_function_impl", _ATTENTION),
    Name("torch._C._get_function_stack_at", "refusing to compile under torch-function modes"),
    Name("torch._C._len_torch_function_stack", "detecting torch-function modes"),
    Name("torch._C._len_torch_dispatch_stack", "detecting torch-dispatch modes"),
    Name("torch._C._ensureCUDADeviceGuardSet", "recording in threads, with PyTorch for CUDA on a machine without a GPU",
         name="ensure_cuda_device_guard_set"),
    *[Name(f"torch._C._pop_torch_{kind}_stack", "leaving modes after the exception of a signal handler")
      for kind in ("function", "dispatch")],
    Name("torch._C._is_torch_function_mode_enabled", "recording a composite or a checkpoint as one bound symbol"),
    Name("torch.overrides._get_current_function_mode", "recording a composite or a checkpoint as one bound symbol"),
    Name("torch.utils._device.DeviceContext", "torch.set_default_device around compiled programs"),
    Name("torch.utils._mode_utils.no_dispatch", _RECORD),
    Name("torch.utils._python_dispatch.TorchDispatchMode", "recording the operators that a function calls"),
    Name("torch.utils._python_dispatch._disable_current_modes", "computing constants while a program is recorded"),
    Name("torch.Tensor._make_wrapper_subclass", _RECORD),
    Name("torch.Tensor._make_subclass", _SUBCLASSES),
    Name("torch._C._swap_tensor_impl", _MEMORY),
    Name("torch.Tensor._post_accumulate_grad_hooks", _MEMORY, kind=Kind.NAME_ONLY),
    Name("torch._C._is_torch_function_enabled", _SUBCLASSES),
    Name("torch._C._nn._parse_to", _SUBCLASSES),
    Name("torch._is_functional_tensor", "refusing tensors of PyTorch's tracers"),
    Name("torch._C._is_tracing", _TRACERS, otherwise=("torch.jit.is_tracing",)),
    Name("torch.fx._symbolic_trace.is_fx_symbolic_tracing", _TRACERS),
    # Control flow.
    *[Name(f"torch._higher_order_ops.{path}", "torch.cond, map, scan and while_loop in compiled programs")
      for path in ("map.map_impl", "scan.scan_op", "while_loop.while_loop_op", "cond.cond_op")],
    # TorchScript.
    Name("torch._C.ScriptMethod", _SCRIPT),
    Name("torch.jit.RecursiveScriptModule", _SCRIPT),
    # functorch.
    Name("torch._C._functorch.is_functorch_wrapped_tensor", _FUNCTORCH),
    Name("torch._C._functorch.peek_interpreter_stack", _FUNCTORCH),
    *[Name(f"torch._C._functorch.{name}", _FUNCTORCH)
      for name in ("get_interpreter_stack", "get_unwrapped", "is_batchedtensor", "maybe_get_level", "unwrap_if_dead",
                   "TransformType")],
    Name("torch._functorch.vmap._add_batch_dim", _FUNCTORCH, kind=Kind.ENTRY_POINT),
    Name("torch._functorch.autograd_function.custom_function_call_vmap_helper", _BATCHING, name="vmap_helper"),
    Name("torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter", _BATCHING, name="current_interpreter"),
    Name("torch._C.DispatchKey.FuncTorchBatched", _BATCHING, name="BATCHED"),
    Name("torch._ops.OpOverload.py_kernels", _BATCHING, name="kernels_by_key", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Name("torch._ops.OpOverload._dispatch_cache", _BATCHING, kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Name("torch._ops.OpOverload._op_dk", _BATCHING, name="kernel_for_key", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Name("torch._functorch.eager_transforms._wrap_for_grad", _FUNCTORCH, kind=Kind.ENTRY_POINT),
    Name("torch.Tensor._is_zerotensor", _FUNCTORCH),
    Name("torch.ops.aten._new_zeros_with_same_feature_meta.default", "torch.func.jacfwd of sizes that vary",
         name="zero_tangent"),
    *[Name(f"torch._C.{name}", "leaving the transformations of torch.func of a program that raises an exception")
      for name in ("_ForceDispatchKeyGuard", "_dispatch_tls_local_include_set", "_dispatch_tls_local_exclude_set")],
    Name("torch._C._dispatch_keys", "computing lazy tensors before a compiled region gets them"),
    Name("torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack", _FUNCTORCH),
    Name("torch._functorch.eager_transforms._slice_argnums", "thunder.grad and thunder.value_and_grad"),
    Name("torch._functorch.eager_transforms.assert_non_empty_tensor_output", "thunder.vjp"),
    # Settings on which the results of a program, or the kernels of its operations, depend.
    Name("torch._C._autocast_supported_devices", _GUARD),
    Name("torch.autograd._profiler_enabled", _GUARD),
    Name("torch._C._is_multithreading_enabled", _GUARD),
    Name("torch._C._is_view_replay_enabled", _GUARD),
    Name("torch._C._is_fwd_grad_enabled", _GUARD),
    Name("torch._C._autograd._saved_tensors_hooks_is_enabled", _GUARD),
    Name("torch._C._get_nnpack_enabled", _GUARD),
    Name("torch._C._is_any_autocast_enabled", _GUARD),
    Name("torch._C._get_cublas_allow_tf32", _GUARD),
    *[Name(f"torch._C._get_{name}", _GUARD)
      for name in ("cudnn_allow_tf32", "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "mkldnn_enabled",
                   "deterministic_fill_uninitialized_memory")],
    Name("torch._C._get_deterministic_algorithms", _GUARD, otherwise=("torch.are_deterministic_algorithms_enabled",)),
    Name("torch._C._get_deterministic_algorithms_warn_only", _GUARD,
        otherwise=("torch.is_deterministic_algorithms_warn_only_enabled",)),
    Name("torch._C._get_float32_matmul_precision", _GUARD, otherwise=("torch.get_float32_matmul_precision",)),
    Name("torch._C._get_flash_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.flash_sdp_enabled",)),
    Name("torch._C._get_mem_efficient_sdp_enabled", _KERNELS,
        otherwise=("torch.backends.cuda.mem_efficient_sdp_enabled",)),
    Name("torch._C._get_math_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.math_sdp_enabled",)),
    Name("torch._C._get_cudnn_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.cudnn_sdp_enabled",)),
    Name("torch._C._get_overrideable_sdp_enabled", _KERNELS),
    Name("torch.backends.mha._is_fastpath_enabled", _KERNELS, kind=Kind.NAME_ONLY),
    Name("torch._C._set_grad_enabled", "torch.set_grad_enabled in compiled programs"),
    Name("torch._C._set_cudnn_enabled", "calls whose kernels depend on values, on GPUs"),
    *[Name(f"torch.nn.modules.module._global_{name}_hooks", _GUARD, kind=Kind.NAME_ONLY)
      for name in ("forward", "forward_pre", "backward", "backward_pre", "buffer_registration", "module_registration",
                   "parameter_registration")],
    Name("torch.autograd.forward_ad._current_level", "detecting forward-mode differentiation", kind=Kind.ENTRY_POINT),
    Name("torch._C._dynamo.guards.GlobalStateGuard", "the fast check of PyTorch's settings"),
    Name("torch._C._dynamo.guards.TensorGuards", "the fast check of tensors"),
    # Tensors: views, versions, storages.
    Name("torch.Tensor._base", _SHARED, name="view_base", kind=Kind.ATTRIBUTE),
    Name("torch.Tensor._base.__get__", _SHARED, name="view_base_getter"),
    Name("torch.Tensor._version", "detecting writes between calls", name="version_of", kind=Kind.ATTRIBUTE),
    Name("torch.Tensor._cdata", _SHARED, name="tensor_identity", kind=Kind.ATTRIBUTE),
    Name("torch.Tensor._version", "programs that read versions of tensors", name="version_property"),
    Name("torch.Tensor._cdata", "programs that read addresses of tensors", name="identity_property"),
    Name("torch._ops._c10d_functional", "communication in compiled programs", kind=Kind.NAME_ONLY),
    Name("torch.UntypedStorage._cdata", _SHARED, name="storage_identity", kind=Kind.ATTRIBUTE),
    Name("torch.Generator._cdata", "random generators as arguments under torch.func", name="generator_identity",
        kind=Kind.ATTRIBUTE),
    Name("torch.Tensor._is_view", "results that are views"),
    Name("torch.Tensor._backward_hooks", "hooks on results of compiled programs", kind=Kind.ATTRIBUTE,
        name="backward_hooks_of"),
    Name("torch.Tensor._post_accumulate_grad_hooks", "programs that read gradients of parameters with hooks",
        kind=Kind.ATTRIBUTE, name="accumulation_hooks_of"),
    Name("torch._neg_view", "inputs whose negation is pending"),
    Name("torch._C._is_alias_of", _SHARED),
    Name("torch._C._autograd.CreationMeta", "views as arguments"),
    Name("torch._C._autograd._get_creation_meta", "views as arguments"),
    Name("torch._C._autograd._set_creation_meta", "views as arguments"),
    Name("torch._prims_common.compute_required_storage_length", "copies that preserve strides"),
    # Autograd.
    Name("torch._C._autograd._get_current_graph_task_keep_graph", _BACKWARD),
    Name("torch._C._autograd._top_saved_tensors_default_hooks", _SAVED_HOOKS),
    Name("torch._C._will_engine_execute_node", "backward that computes gradients of parameters only"),
    Name("torch._foreach_copy_", "writes of many inputs at once"),
    # Replaced during recording, because no mode intercepts them.
    Name("torch.utils.checkpoint._checkpoint_without_reentrant_generator", _CHECKPOINT, kind=Kind.ENTRY_POINT,
        until="2.14"),
    Name("torch.utils.checkpoint._checkpoint_without_reentrant_generator_impl", _CHECKPOINT, kind=Kind.ENTRY_POINT,
        since="2.14"),
    Name("torch.utils.checkpoint._enable_checkpoint_early_stop", _CHECKPOINT, kind=Kind.ENTRY_POINT),
    Name("torch.nn.modules.module.BackwardHook", _MODULE_HOOKS, kind=Kind.ENTRY_POINT, name="module_backward_hook"),
    Name("torch.utils.hooks.BackwardHook._apply_on_tensors", _MODULE_HOOKS),
    Name("torch._dynamo.eval_frame._stance", "functions compiled by torch.compile, in programs",
        kind=Kind.ENTRY_POINT, name="dynamo_stance"),
    Name("torch._dynamo.eval_frame._stance", "torch.compiler.set_stance around compiled programs",
        kind=Kind.NAME_ONLY, name="stance_variable"),
    *[Name(f"torch.compiler.disable.{name}", "compiled programs that torch.compile calls",
           kind=Kind.NAME_ONLY)
      for name in ("_torchdynamo_disable", "_torchdynamo_disable_msg")],
    Name("torch._dynamo.eval_frame.DynamoStance", "functions compiled by torch.compile, in programs"),
    Name("torch._dynamo.eval_frame.cached_backends", "torch.compiler.reset()"),
    Name("torch._dynamo.eval_frame.DisableContext", _DISABLED),
    Name("torch._dynamo.external_utils.get_nonrecursive_disable_wrapper", _DISABLED),
    *[Name(f"torch._C._dynamo.eval_frame.{name}", "compiled programs that torch.compile calls")
      for name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy")],
    Name("torch.compiler._is_compiling_flag", "programs that call torch.compiler.is_compiling()",
        kind=Kind.ENTRY_POINT),
    Name("torch._nested_tensor_from_mask_left_aligned", _ATTENTION, kind=Kind.ENTRY_POINT),
    Name("torch._nested_tensor_from_mask", _ATTENTION, kind=Kind.ENTRY_POINT),
    Name("torch.nn.modules.transformer._detect_is_causal_mask", _ATTENTION, kind=Kind.ENTRY_POINT),
    # Modules.
    *[Name(f"torch.nn.Module._{name}", f"reads of {feature}", kind=Kind.NAME_ONLY, example="torch.nn.Module()")
      for name, feature in (("parameters", "parameters"), ("buffers", "buffers"), ("modules", "submodules"))],
    *[Name(f"torch.nn.Module._{name}_hooks", "hooks of modules", kind=Kind.NAME_ONLY, example="torch.nn.Module()")
      for name in ("forward", "forward_pre", "backward", "backward_pre")],
    Name("torch.nn.Module._get_backward_hooks", _MODULE_HOOKS, kind=Kind.NAME_ONLY),
    Name("torch.nn.Module._get_backward_pre_hooks", _MODULE_HOOKS, kind=Kind.NAME_ONLY),
    Name("torch.nn.Module._call_impl", "calls of modules", kind=Kind.NAME_ONLY),
    Name("torch.nn.Module._wrapped_call_impl", "calls of modules", kind=Kind.NAME_ONLY),
    Name("torch.nn.Module.state_dict._metadata", "state dicts of compiled modules", kind=Kind.NAME_ONLY,
        example="torch.nn.Module().state_dict()"),
    Name("torch.nn.modules.lazy.LazyModuleMixin._infer_parameters", "lazy modules", kind=Kind.NAME_ONLY),
    Name("torch.fx._lazy_graph_module._LazyGraphModule", "thunder.jit as a backend of torch.compile"),
    Name("torch.nn.Module._replicate_for_data_parallel", "torch.nn.DataParallel around compiled modules",
        kind=Kind.NAME_ONLY),
    Name("torch.distributed._composable.contract", "composable functions of compiled modules", kind=Kind.NAME_ONLY),
    Name("torch.distributed._composable.replicate", "running programs with replicated modules eagerly",
        kind=Kind.NAME_ONLY),
    # Operators, and private functions that are called instead of the public ones.
    Name("torch._ops.OpOverload", _OPERATORS),
    Name("torch._ops.OpOverloadPacket", _OPERATORS),
    Name("torch._ops.OpOverload._schema", _OPERATORS, name="schema_of", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Name("torch._ops.OpOverload._overloadname", _OPERATORS, name="overload_name", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Name("torch._ops.OpOverloadPacket._qualified_op_name", _OPERATORS, kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu"),
    Name("torch.nn.modules._functions.SyncBatchNorm", "SyncBatchNorm in compiled programs",
        name="SyncBatchNormFunction"),
    Name("torch.distributed.ProcessGroup._start_coalescing", "refusing coalesced communication", kind=Kind.NAME_ONLY),
    Name("torch._C._distributed_c10d._resolve_process_group", "process groups in compiled programs",
        name="process_group_named"),
    Name("torch.testing._internal.distributed.fake_pg.FakeStore", "programs of many ranks in one process"),
    Name("torch._library.custom_ops.CustomOpDef", "operators defined by torch.library.custom_op"),
    Name("torch._decomp.core_aten_decompositions", "lowering to core ATen"),
    Name("torch._C._dispatch_has_kernel_for_dispatch_key", "operators without derivatives"),
    Name("torch._C._dispatch_get_all_op_names", "patterns of operators in configurations"),
    Name("torch._library.custom_ops.CustomOpDef._opoverload", "operators defined by torch.library.custom_op",
        name="overload_of", kind=Kind.ATTRIBUTE),
    Name("torch._library.custom_ops.OPDEFS", _KERNELS_IN_PYTHON, name="custom_operators"),
    Name("torch._library.custom_ops.CustomOpDef._init_fn", _KERNELS_IN_PYTHON, name="kernel_of", kind=Kind.ATTRIBUTE),
    Name("torch._library.custom_ops.CustomOpDef._backend_fns", _KERNELS_IN_PYTHON, name="kernels_by_device",
        kind=Kind.ATTRIBUTE),
    Name("torch._library.custom_ops.CustomOpDef._backward_fn", _KERNELS_IN_PYTHON, name="derivative_of",
        kind=Kind.ATTRIBUTE),
    Name("torch._library.custom_ops.CustomOpDef._setup_context_fn", _KERNELS_IN_PYTHON, name="setup_context_of",
        kind=Kind.ATTRIBUTE),
    Name("torch._library.custom_ops.CustomOpDef._vmap_fn", _KERNELS_IN_PYTHON, name="batching_rule_of",
        kind=Kind.ATTRIBUTE),
    Name("torch.library._impls", _KERNELS_IN_PYTHON, name="python_kernel_keys"),
    Name("torch._C._VariableFunctions", _OPERATORS),
    Name("torch._C._nn", "programs whose calls are those of ATen operators", name="neural_functions"),
    Name("torch._foreach_norm", "norms with an exponent that varies"),
    Name("torch._assert", "assertions in compiled programs", name="torch_assert"),
    Name("torch._C.TensorBase", "methods of tensors that the user has replaced"),
    *[Name(f"torch._C.{space}", "names of functions in traces", name=f"namespace{space}", kind=Kind.NAME_ONLY)
      for space in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")],
    Name("torch._trilinear", "names of functions in traces", kind=Kind.NAME_ONLY),
    Name("torch.ops.aten._unsafe_view.default", _OPERATORS, name="aten_unsafe_view"),
    Name("torch.ops.aten._to_copy.default", _OPERATORS, name="aten_to_copy"),
    Name("torch.ops.aten._native_batch_norm_legit.default", _OPERATORS, name="aten_native_batch_norm_legit"),
    Name("torch.ops.aten._native_batch_norm_legit.no_stats", _OPERATORS, name="aten_native_batch_norm_legit_no_stats"),
    Name("torch.ops.aten._chunk_cat.default", _OPERATORS, name="aten_chunk_cat"),
    Name("torch.ops.aten._local_scalar_dense.default", _OPERATORS, name="aten_local_scalar_dense"),
    Name("torch.ops.aten._pad_packed_sequence.default", _OPERATORS, name="aten_pad_packed_sequence"),
    Name("torch._pad_packed_sequence", "bounds of the kernels of packed sequences", name="pad_packed_sequence"),
    Name("torch.ops.aten._log_softmax_backward_data.default", _OPERATORS, name="aten_log_softmax_backward_data"),
    Name("torch.ops.aten._native_multi_head_attention.default", _ATTENTION, name="aten_native_multi_head_attention"),
    Name("torch.ops.aten._transformer_encoder_layer_fwd.default", _ATTENTION, name="aten_transformer_encoder_layer"),
    *[Name(f"torch.ops.aten.{name}", "the cost of operators, for recomputation in backward",
          name=f"aten{name}", kind=Kind.NAME_ONLY)
      for name in ("_fused_rms_norm", "_log_softmax", "_safe_softmax", "_softmax")],
    Name("torch._log_softmax_backward_data", "the derivative of log_softmax"),
    Name("torch._softmax_backward_data", "the derivative of softmax"),
    Name("torch.utils._pytree.register_pytree_node", "refusing to flatten objects received from other ranks"),
    *[Name(f"torch.utils._pytree.{name}", "nested arguments of thunder.grad and of tests")
      for name in ("tree_flatten", "tree_leaves", "tree_map", "tree_unflatten", "treespec_pprint")],
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The object of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
