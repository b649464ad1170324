"""Classes of kernels; the names are those of kernels that ran."""

import pytest

from benchmarks.profiling.classes import class_of

LISTS = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<8, at::native::"
RADIX = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSort"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "matmuls"),
        ("nvjet_sm90_qrtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT", "matmuls"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "matmuls"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "matmuls"),
        ("triton_poi_fused__scaled_mm__to_copy_clamp_clone_mul_reciprocal_t_view_20", "Inductor fusions"),
        ("triton_red_fused__log_softmax_prepare_softmax_online_9", "Inductor fusions"),
        ("triton_per_fused_0", "Inductor fusions"),
        ("triton_tem_fused_addmm_3", "matmuls"),
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("nvfuser_inner_outer_persistent_f0_c1_r0_g0", "nvFuser fusions"),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
            "attention",
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
            "attention",
        ),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*", "attention"),
        ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int", "attention"),
        ("void cudnn::fusion::fmha_reduce_head<true>(void const*, void*, unsigned int", "attention"),
        (LISTS + "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace", "optimizer"),
        (
            LISTS + "TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpSca",
            "foreach operations",
        ),
        (
            "cast_transpose_optimized_kernel(__nv_bfloat16 const*, float const*, __nv_fp8_e4m3*, __nv_fp8_e4m3*, float",
            "casts to FP8",
        ),
        (
            "transformer_engine::(anonymous namespace)::zero_amax_kernel(float*, float const*)",
            "casts to FP8",
        ),
        (
            "void transformer_engine::(anonymous namespace)::amax_kernel<16, true, __nv_bfloat16>(__nv_bfloat16 const*",
            "casts to FP8",
        ),
        ("ln_tma_fwd_kernel", "normalization"),
        ("ln_bwd_finalize_kernel", "normalization"),
        ("Memset (Device)", "copies and fills"),
        ("Memcpy DtoD (Device -> Device)", "copies and fills"),
        ("memset32", "copies and fills"),
        (ELEMENTWISE + "FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int", "copies and fills"),
        (ELEMENTWISE + "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", "copies and fills"),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<at::native",
            "copies and fills",
        ),
        (ELEMENTWISE + "CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int", "PyTorch elementwise kernels"),
        (
            "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float",
            "PyTorch reductions",
        ),
        (RADIX + "OnesweepKernel<at_cuda_detail::cub::detail::radix::policy_hub", "indexing and sorting"),
        (
            "void at::native::(anonymous namespace)::sum_and_scatter<c10::BFloat16, long>(long const*, c10::BFloat16*",
            "indexing and sorting",
        ),
        (
            "void at::native::(anonymous namespace)::compute_num_of_partial_segments<long>(long const*, long const*",
            "indexing and sorting",
        ),
        ("rotate", "other kernels"),
        ("multiply_gated", "other kernels"),
        ("gradients_of_rows", "other kernels"),
    ],
)
def test_kernels_have_classes(name, expected):
    assert class_of(name, "cuda") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mm", "matmuls"),
        ("aten::mul", "other operators"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::_fused_adamw_", "optimizer"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("BridgeBackward", "compiled programs"),
        ("## Call CompiledFxGraph fl7ai57a4nkeholvs6saactu2sas ##", "compiled programs"),
        ("CompiledFunctionBackward", "compiled programs"),
        ("MulBackward0", "autograd engine"),
        ("autograd::engine::evaluate_function: MmBackward0", "autograd engine"),
        ("aten::silu_backward", "other operators"),
        ("aten::_unsafe_view", "views"),
        ("aten::_to_copy", "copies and fills"),
        ("aten::_log_softmax", "softmax and losses"),
        ("aten::native_layer_norm", "normalization"),
    ],
)  # fmt: skip
def test_operators_have_classes(name, expected):
    assert class_of(name, "cpu") == expected
