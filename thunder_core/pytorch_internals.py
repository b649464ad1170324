"""Every private name of PyTorch that Thunder touches or replaces: what for, and in which versions.

All other files import from here, by the name of the row: ``from thunder_core.pytorch_internals import FakeTensor``. A
private name gets a row here before it is used, and a check in ``tests/test_pytorch_internals.py``.
`thunder_core/private_names.py` says what becomes of a name that the installed PyTorch lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

if TYPE_CHECKING:  # classes that annotations name, or that are derived from
    from torch._C import DisableTorchFunction as DisableTorchFunction
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

_RECORD = "recording programs"
_SIZES = "sizes that vary between the calls of a compiled program"
_GUARD = "noticing that a setting of PyTorch changed between calls"
_KERNELS = "noticing that the choice of attention kernels changed between calls"
_FUNCTORCH = "programs under torch.func transformations"
_SAVED_HOOKS = "saved-tensor hooks around compiled programs"
_BACKWARD = "backward of compiled programs"
_CHECKPOINT = "torch.utils.checkpoint in compiled programs"
_MODULE_HOOKS = "backward hooks of modules in compiled programs"
_SUBCLASSES = "tensor subclasses in compiled programs"
_SCRIPT = "programs in TorchScript inside of compiled programs"
_DTENSOR = "DTensor in compiled programs"
_ATTENTION = "PyTorch's attention modules in compiled programs"
_SHARED = "arguments that share memory"
_OPERATORS = "PyTorch's operators in traces"

ROWS: Final = (
    # Fake tensors: shapes, dtypes, strides and aliasing of every recorded call.
    Row("torch._subclasses.fake_tensor.FakeTensor", _RECORD),
    Row("torch._subclasses.fake_tensor.FakeTensorMode", _RECORD),
    Row("torch._subclasses.fake_tensor.DataDependentOutputException", "errors about values that are not known"),
    Row("torch._subclasses.fake_tensor.DynamicOutputShapeException", "errors about shapes that are not known"),
    Row("torch._subclasses.fake_tensor.UnsupportedFakeTensorException", "errors about tensors that have no fake"),
    Row("torch._subclasses.fake_tensor.UnsupportedOperatorException", "errors about operators without fake kernel"),
    Row("torch._subclasses.fake_tensor", "PyTorch's log of calls that fail on fake tensors, silenced",
        kind=Kind.SPELLED),
    # Sizes that vary between calls.
    Row("torch.fx.experimental.symbolic_shapes.ShapeEnv", _SIZES),
    Row("torch.fx.experimental.symbolic_shapes.DimDynamic", _SIZES),
    Row("torch.fx.experimental.symbolic_shapes.StrictMinMaxConstraint", _SIZES),
    Row("torch._guards.Source", _SIZES, name="ShapeSource"),
    Row("torch._guards.GuardSource", _SIZES),
    Row("torch.utils._sympy.printers.PythonPrinter", _SIZES),
    Row("torch._C._EnablePythonDispatcher", _SIZES),
    Row("torch.fx.experimental._config", "sizes that the values of tensors decide", name="size_settings"),
    Row("torch.utils._sympy.value_ranges.ValueRanges", _SIZES),
    # Torch-function and dispatch modes: what the program calls.
    Row("torch._C.DisableTorchFunction", _RECORD),
    Row("torch._C.DisableTorchFunctionSubclass", _RECORD),
    Row("torch._C._EnableTorchFunction", "recording what derivatives, rewrites and patterns call"),
    Row("torch._C._disabled_torch_function_impl", _ATTENTION),
    Row("torch._C._get_function_stack_at", "refusing to compile under torch-function modes"),
    Row("torch._C._len_torch_function_stack", "noticing torch-function modes"),
    Row("torch._C._len_torch_dispatch_stack", "noticing torch-dispatch modes"),
    Row("torch._C._is_torch_function_mode_enabled", "recording calls of composites and checkpoints as one line"),
    Row("torch.overrides._get_current_function_mode", "recording calls of composites and checkpoints as one line"),
    Row("torch.utils._device.DeviceContext", "torch.set_default_device around compiled programs"),
    Row("torch.utils._mode_utils.no_dispatch", _RECORD),
    Row("torch.utils._python_dispatch.TorchDispatchMode", "recording the operators that a call consists of"),
    Row("torch.utils._python_dispatch._disable_current_modes", "computing constants while a program is recorded"),
    Row("torch.Tensor._make_wrapper_subclass", _RECORD),
    Row("torch.Tensor._make_subclass", _SUBCLASSES),
    Row("torch._C._is_torch_function_enabled", _SUBCLASSES),
    Row("torch._C._nn._parse_to", _SUBCLASSES),
    Row("torch.nested._internal.nested_tensor._nt_view_dummy", _SUBCLASSES, kind=Kind.ENTRY_POINT,
        name="nested_view_dummy"),
    Row("torch.nested._internal.ops.jagged_torch_function", _SUBCLASSES, kind=Kind.ENTRY_POINT),
    Row("torch.nested._internal.sdpa._select_sdp_backend", _SUBCLASSES, kind=Kind.ENTRY_POINT),
    Row("torch._scaled_dot_product_attention_math", _SUBCLASSES),
    *[Row(f"torch.nested._internal.nested_tensor.NestedTensor.{name}", _SUBCLASSES, kind=Kind.SPELLED)
      for name in ("_maybe_min_seqlen", "_maybe_max_seqlen", "_ragged_idx")],
    Row("torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers", _DTENSOR, name="dtensor_handlers"),
    Row("torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached", _DTENSOR,
        kind=Kind.SPELLED),
    Row("torch.distributed.tensor._random.OffsetBasedRNGTracker._distribute_region", _DTENSOR, kind=Kind.SPELLED),
    Row("torch.distributed.tensor._api.check_tensor_meta", _DTENSOR, kind=Kind.SPELLED),
    Row("torch._C._get_dtensor_allow_implicit_replication", _DTENSOR),
    Row("torch._is_functional_tensor", "refusing tensors of PyTorch's tracers"),
    # Control flow.
    *[Row(f"torch._higher_order_ops.{path}", "loops and branches that are operators, in compiled programs")
      for path in ("map.map_impl", "scan.scan_op", "while_loop.while_loop_op", "cond.cond_op")],
    # TorchScript.
    Row("torch._C.ScriptMethod", _SCRIPT),
    Row("torch.jit.RecursiveScriptModule", _SCRIPT),
    Row("torch._C.parse_schema", _SCRIPT),
    Row("torch._C._jit_get_operation", _SCRIPT),
    Row("torch._C._dispatch_find_schema_or_throw", _SCRIPT),
    Row("torch.jit.RecursiveScriptModule._c", _SCRIPT, name="state_of_script", kind=Kind.ATTRIBUTE,
        example="torch.jit.ScriptModule()"),
    # functorch.
    Row("torch._C._functorch.is_functorch_wrapped_tensor", _FUNCTORCH),
    Row("torch._C._functorch.peek_interpreter_stack", _FUNCTORCH),
    *[Row(f"torch._C._functorch.{name}", _FUNCTORCH)
      for name in ("get_interpreter_stack", "get_unwrapped", "is_batchedtensor", "maybe_get_level", "unwrap_if_dead",
                   "TransformType")],
    Row("torch.Tensor._is_zerotensor", _FUNCTORCH),
    Row("torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack", _FUNCTORCH),
    Row("torch._functorch.eager_transforms._slice_argnums", "thunder.grad and thunder.value_and_grad"),
    Row("torch._functorch.eager_transforms.assert_non_empty_tensor_output", "thunder.vjp"),
    # Settings that decide what a program means, or how its operations run.
    Row("torch._C._autocast_supported_devices", _GUARD),
    Row("torch.autograd._profiler_enabled", _GUARD),
    Row("torch._C._is_multithreading_enabled", _GUARD),
    Row("torch._C._is_view_replay_enabled", _GUARD),
    Row("torch._C._is_fwd_grad_enabled", _GUARD),
    Row("torch._C._autograd._saved_tensors_hooks_is_enabled", _GUARD),
    Row("torch._C._get_nnpack_enabled", _GUARD),
    Row("torch._C._is_any_autocast_enabled", _GUARD),
    Row("torch._C._get_cublas_allow_tf32", _GUARD),
    *[Row(f"torch._C._get_{name}", _GUARD)
      for name in ("cudnn_allow_tf32", "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "mkldnn_enabled",
                   "deterministic_fill_uninitialized_memory")],
    Row("torch._C._get_deterministic_algorithms", _GUARD, otherwise=("torch.are_deterministic_algorithms_enabled",)),
    Row("torch._C._get_deterministic_algorithms_warn_only", _GUARD,
        otherwise=("torch.is_deterministic_algorithms_warn_only_enabled",)),
    Row("torch._C._get_float32_matmul_precision", _GUARD, otherwise=("torch.get_float32_matmul_precision",)),
    Row("torch._C._get_flash_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.flash_sdp_enabled",)),
    Row("torch._C._get_mem_efficient_sdp_enabled", _KERNELS,
        otherwise=("torch.backends.cuda.mem_efficient_sdp_enabled",)),
    Row("torch._C._get_math_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.math_sdp_enabled",)),
    Row("torch._C._get_cudnn_sdp_enabled", _KERNELS, otherwise=("torch.backends.cuda.cudnn_sdp_enabled",)),
    Row("torch._C._get_overrideable_sdp_enabled", _KERNELS),
    Row("torch.backends.mha._is_fastpath_enabled", _KERNELS, kind=Kind.SPELLED),
    Row("torch._C._set_grad_enabled", "torch.set_grad_enabled in compiled programs"),
    Row("torch._C._set_cudnn_enabled", "calls whose kernels depend on values, on GPUs"),
    Row("torch.nn.modules.module._global_forward_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_forward_pre_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_backward_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_backward_pre_hooks", _GUARD,
        kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_buffer_registration_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_module_registration_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.nn.modules.module._global_parameter_registration_hooks", _GUARD, kind=Kind.SPELLED),
    Row("torch.autograd.forward_ad._current_level", "noticing forward-mode differentiation", kind=Kind.ENTRY_POINT),
    Row("torch._C._dynamo.guards.GlobalStateGuard", "the fast check of PyTorch's settings"),
    Row("torch._C._dynamo.guards.TensorGuards", "the fast check of tensors"),
    # Tensors: views, versions, storages.
    Row("torch.Tensor._base", _SHARED, name="view_base", kind=Kind.ATTRIBUTE),
    Row("torch.Tensor._base.__get__", _SHARED, name="view_base_getter"),
    Row("torch.Tensor._version", "noticing writes between calls", name="version_of", kind=Kind.ATTRIBUTE),
    Row("torch.Tensor._cdata", _SHARED, name="tensor_identity", kind=Kind.ATTRIBUTE),
    Row("torch.Tensor._version", "versions of tensors that a program asks for", name="version_property"),
    Row("torch.Tensor._cdata", "addresses of tensors that a program asks for", name="identity_property"),
    Row("torch._ops._c10d_functional", "communication in compiled programs", kind=Kind.SPELLED),
    Row("torch.UntypedStorage._cdata", _SHARED, name="storage_identity", kind=Kind.ATTRIBUTE),
    Row("torch.Generator._cdata", "random generators as arguments under torch.func", name="generator_identity",
        kind=Kind.ATTRIBUTE),
    Row("torch.Tensor._is_view", "results that are views"),
    Row("torch.Tensor._backward_hooks", "hooks on results of compiled programs", kind=Kind.ATTRIBUTE,
        name="backward_hooks_of"),
    Row("torch.Tensor._post_accumulate_grad_hooks", "programs that read gradients of parameters with hooks",
        kind=Kind.ATTRIBUTE, name="accumulation_hooks_of"),
    Row("torch._neg_view", "inputs whose negation is pending"),
    Row("torch._C._is_alias_of", _SHARED),
    Row("torch._C._autograd.CreationMeta", "views as arguments"),
    Row("torch._C._autograd._get_creation_meta", "views as arguments"),
    Row("torch._C._autograd._set_creation_meta", "views as arguments"),
    Row("torch._prims_common.compute_required_storage_length", "copies that leave strides as they are"),
    # Autograd.
    Row("torch._C._autograd._get_current_graph_task_keep_graph", _BACKWARD),
    Row("torch._C._autograd._top_saved_tensors_default_hooks", _SAVED_HOOKS),
    Row("torch._C._will_engine_execute_node", "gradients of parameters alone"),
    # What is replaced while a program is recorded, since no mode sees it.
    Row("torch.utils.checkpoint._checkpoint_without_reentrant_generator", _CHECKPOINT, kind=Kind.ENTRY_POINT,
        until="2.14"),
    Row("torch.utils.checkpoint._checkpoint_without_reentrant_generator_impl", _CHECKPOINT, kind=Kind.ENTRY_POINT,
        since="2.14"),
    Row("torch.utils.checkpoint._enable_checkpoint_early_stop", _CHECKPOINT, kind=Kind.ENTRY_POINT),
    Row("torch.nn.modules.module.BackwardHook", _MODULE_HOOKS, kind=Kind.ENTRY_POINT, name="module_backward_hook"),
    Row("torch.utils.hooks.BackwardHook._apply_on_tensors", _MODULE_HOOKS),
    Row("torch._dynamo.eval_frame._stance", "functions that torch.compile compiled, in programs",
        kind=Kind.ENTRY_POINT, name="dynamo_stance"),
    Row("torch._dynamo.eval_frame.DynamoStance", "functions that torch.compile compiled, in programs"),
    Row("torch.compiler._is_compiling_flag", "code that asks torch.compiler.is_compiling()", kind=Kind.ENTRY_POINT),
    Row("torch._nested_tensor_from_mask_left_aligned", _ATTENTION, kind=Kind.ENTRY_POINT),
    Row("torch._nested_tensor_from_mask", _ATTENTION, kind=Kind.ENTRY_POINT),
    Row("torch.nn.modules.transformer._detect_is_causal_mask", _ATTENTION, kind=Kind.ENTRY_POINT),
    # Modules.
    Row("torch.nn.Module._parameters", "reads of parameters", kind=Kind.SPELLED, example="torch.nn.Module()"),
    Row("torch.nn.Module._buffers", "reads of buffers", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._modules", "reads of submodules", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._forward_hooks", "hooks of modules", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._forward_pre_hooks", "hooks of modules", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._backward_hooks", "hooks of modules", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._backward_pre_hooks", "hooks of modules", kind=Kind.SPELLED,
        example="torch.nn.Module()"),
    Row("torch.nn.Module._get_backward_hooks", _MODULE_HOOKS, kind=Kind.SPELLED),
    Row("torch.nn.Module._get_backward_pre_hooks", _MODULE_HOOKS, kind=Kind.SPELLED),
    Row("torch.nn.Module._call_impl", "calls of modules", kind=Kind.SPELLED),
    Row("torch.nn.Module._wrapped_call_impl", "calls of modules", kind=Kind.SPELLED),
    Row("torch.nn.Module.state_dict._metadata", "state dicts of compiled modules", kind=Kind.SPELLED,
        example="torch.nn.Module().state_dict()"),
    Row("torch.nn.modules.lazy.LazyModuleMixin._infer_parameters", "lazy modules", kind=Kind.SPELLED),
    Row("torch.fx._lazy_graph_module._LazyGraphModule", "thunder.jit as a backend of torch.compile"),
    Row("torch.nn.Module._replicate_for_data_parallel", "torch.nn.DataParallel around compiled modules",
        kind=Kind.SPELLED),
    Row("torch.distributed._composable.contract", "refusing fully_shard of compiled modules",
        kind=Kind.SPELLED),
    Row("torch.distributed._composable.replicate", "refusing replicated modules in compiled programs",
        kind=Kind.SPELLED),
    # Operators, and functions of PyTorch that are called instead of their public forms.
    Row("torch._ops.OpOverload", _OPERATORS),
    Row("torch._ops.OpOverloadPacket", _OPERATORS),
    Row("torch._ops.OpOverload._schema", _OPERATORS, name="schema_of", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Row("torch._ops.OpOverload._overloadname", _OPERATORS, name="overload_name", kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu.default"),
    Row("torch._ops.OpOverloadPacket._qualified_op_name", _OPERATORS, kind=Kind.ATTRIBUTE,
        example="torch.ops.aten.relu"),
    Row("torch.distributed.ProcessGroup._start_coalescing", "refusing coalesced communication", kind=Kind.SPELLED),
    Row("torch._C._distributed_c10d._resolve_process_group", "the ranks that compiled programs communicate with",
        name="process_group_named"),
    Row("torch.distributed.distributed_c10d._get_default_store", "comparing the collectives of ranks"),
    Row("torch.testing._internal.distributed.fake_pg.FakeStore", "programs of many ranks without machines"),
    Row("torch._library.custom_ops.CustomOpDef", "operators that torch.library.custom_op defines"),
    Row("torch._decomp.core_aten_decompositions", "lowering to core ATen"),
    Row("torch._C._dispatch_has_kernel_for_dispatch_key", "autocast on GPUs"),
    Row("torch._C._dispatch_get_all_op_names", "patterns of operators in configurations"),
    Row("torch._library.custom_ops.CustomOpDef._opoverload", "operators that torch.library.custom_op defines",
        name="overload_of", kind=Kind.ATTRIBUTE),
    Row("torch._C._VariableFunctions", _OPERATORS),
    *[Row(f"torch._C.{space}", "names of functions in traces", name=f"namespace{space}", kind=Kind.SPELLED)
      for space in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")],
    Row("torch._trilinear", "names of functions in traces", kind=Kind.SPELLED),
    Row("torch.ops.aten._unsafe_view.default", _OPERATORS, name="aten_unsafe_view"),
    Row("torch.ops.aten._to_copy.default", _OPERATORS, name="aten_to_copy"),
    Row("torch.ops.aten._native_batch_norm_legit.default", _OPERATORS, name="aten_native_batch_norm_legit"),
    Row("torch.ops.aten._native_multi_head_attention.default", _ATTENTION, name="aten_native_multi_head_attention"),
    Row("torch.ops.aten._transformer_encoder_layer_fwd.default", _ATTENTION, name="aten_transformer_encoder_layer"),
    *[Row(f"torch.ops.aten.{name}", "how much work an operator is, for what backward computes again",
          name=f"aten{name}", kind=Kind.SPELLED)
      for name in ("_fused_rms_norm", "_log_softmax", "_safe_softmax", "_softmax")],
    Row("torch._log_softmax_backward_data", "the derivative of log_softmax"),
    Row("torch._softmax_backward_data", "the derivative of softmax"),
    *[Row(f"torch.utils._pytree.{name}", "nested arguments of thunder.grad and of tests")
      for name in ("tree_flatten", "tree_leaves", "tree_map", "tree_unflatten", "treespec_pprint")],
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
