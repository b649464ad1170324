"""Classification of kernels and operators by name."""

from __future__ import annotations

import re

Classes = tuple[tuple[str, str], ...]

KERNELS: Classes = (
    # Inductor names fusions after their operations, so these patterns precede those of the operations. Templates
    # (max-autotune) implement the operation itself.
    ("attention", r"^triton_tem_.*attention"),
    ("matmuls", r"^triton_tem_"),
    ("Inductor fusions", r"^triton_"),
    ("nvFuser fusions", r"nvfuser"),
    ("attention", r"attention|flash|fmha|sdpa|dot_do_o|convert_dq_to_16bits"),
    ("optimizer", r"FusedOptimizer"),
    ("foreach operations", r"multi_tensor_apply"),
    ("casts to FP8", r"transformer_engine::|cast_transpose|amax_kernel"),
    ("convolutions", r"convol|implicit_gemm|(fprop|dgrad|wgrad)"),
    ("matmuls", r"nvjet|gemm|gemv|splitK|cutlass|cublas|xmma"),
    ("normalization", r"^ln_|layer_?norm|rms_?norm|GammaBeta|batch_?norm"),
    ("softmax and losses", r"soft_?max|nll_loss"),
    ("copies and fills", r"^Mem(cpy|set) |^memset|copy_kernel|CatArray|FillFunctor"),
    ("indexing and sorting",
     r"gather|scatter|index_|embedding|grad_weight|partial.*segment|cub::|radix|Sort"),
    ("PyTorch reductions", r"reduce_kernel"),
    ("PyTorch elementwise kernels", r"elementwise_kernel"),
)  # fmt: skip
"""Classes of GPU kernels, and patterns to search in their names; the first match determines the class."""
OPERATORS: Classes = (
    ("attention", r"attention"),
    ("optimizer", r"^Optimizer\.|^aten::_fused_(adam|sgd)"),
    ("foreach operations", r"^aten::_foreach_"),
    ("convolutions", r"convolution"),
    ("matmuls", r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|mv|addmv|dot|_scaled_mm)$|mkl|onednn"),
    ("compiled programs",
     r"^Bridge|^CompiledFunction|CompiledFxGraph|^Torch-Compiled Region|TorchDynamo|Pregraph|AOTDispatcher"),
    ("autograd engine", r"^(torch::)?autograd::|^\w+Backward\d+$"),
    ("normalization", r"norm"),
    ("softmax and losses", r"softmax|nll_loss|cross_entropy"),
    ("copies and fills", r"^aten::(copy_|_to_copy|to|clone|contiguous|cat|fill_|zero_|(zeros|ones|empty|full)\w*)$"),
    ("views", r"^aten::(\w*view|reshape|t|transpose|permute|expand|slice|narrow|as_strided|select|"
     r"(un)?squeeze|split\w*|detach)$|^detach$"),
)  # fmt: skip
"""Classes of CPU operators. Fused kernels are not operators there: their time is that of the compiled program."""
OTHERS = {"cuda": "other kernels", "cpu": "other operators"}
"""The class without a pattern, by device type."""
CLASSES = {"cuda": KERNELS, "cpu": OPERATORS}


def class_of(name: str, device: str) -> str:
    """The class of a GPU kernel or a CPU operator."""
    return next((kind for kind, pattern in CLASSES[device] if re.search(pattern, name, re.IGNORECASE)), OTHERS[device])


def in_order(device: str) -> list[str]:
    """All classes of a device type, without duplicates."""
    return [*dict.fromkeys(kind for kind, _ in CLASSES[device]), OTHERS[device]]
