"""Classes of kernels and operators, by their names."""

from __future__ import annotations

import re

Classes = tuple[tuple[str, str], ...]

KERNELS: Classes = (
    # Inductor names its fusions after what they hold, so these come before what they name. Templates are the operator
    # itself, of max-autotune.
    ("attention", r"^triton_tem_.*attention"),
    ("matrix products", r"^triton_tem_"),
    ("fusions of Inductor", r"^triton_"),
    ("fusions of nvFuser", r"nvfuser"),
    ("attention", r"attention|flash|fmha|sdpa|dot_do_o|convert_dq_to_16bits"),
    ("optimizer", r"FusedOptimizer"),
    ("operations on lists of tensors", r"multi_tensor_apply"),
    ("conversions to eight bits", r"transformer_engine::|cast_transpose|amax_kernel"),
    ("convolutions", r"convol|implicit_gemm|(fprop|dgrad|wgrad)"),
    ("matrix products", r"nvjet|gemm|gemv|splitK|cutlass|cublas|xmma"),
    ("normalization", r"^ln_|layer_?norm|rms_?norm|GammaBeta|batch_?norm"),
    ("softmax and losses", r"soft_?max|nll_loss"),
    ("copies and fills", r"^Mem(cpy|set) |^memset|copy_kernel|CatArray|FillFunctor"),
    ("gathers, sorts and sums by index",
     r"gather|scatter|index_|embedding|grad_weight|partial.*segment|cub::|radix|Sort"),
    ("PyTorch's reductions", r"reduce_kernel"),
    ("PyTorch's elementwise kernels", r"elementwise_kernel"),
)  # fmt: skip
"""Of kernels on a GPU: a class and a pattern that is looked for in the name; the first row that fits counts."""
OPERATORS: Classes = (
    ("attention", r"attention"),
    ("optimizer", r"^Optimizer\.|^aten::_fused_(adam|sgd)"),
    ("operations on lists of tensors", r"^aten::_foreach_"),
    ("convolutions", r"convolution"),
    ("matrix products", r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|mv|addmv|dot|_scaled_mm)$|mkl|onednn"),
    ("fused kernels and their calls",
     r"^Bridge|^CompiledFunction|CompiledFxGraph|^Torch-Compiled Region|TorchDynamo|Pregraph|AOTDispatcher"),
    ("autograd's engine", r"^(torch::)?autograd::|^\w+Backward\d+$"),
    ("normalization", r"norm"),
    ("softmax and losses", r"softmax|nll_loss|cross_entropy"),
    ("copies and fills", r"^aten::(copy_|_to_copy|to|clone|contiguous|cat|fill_|zero_|(zeros|ones|empty|full)\w*)$"),
    ("PyTorch's views", r"^aten::(\w*view|reshape|t|transpose|permute|expand|slice|narrow|as_strided|select|"
     r"(un)?squeeze|split\w*|detach)$|^detach$"),
)  # fmt: skip
"""Of operators on a CPU. What is fused has no name of its own there: it is the time of the compiled program itself."""
OTHERS = {"cuda": "other kernels", "cpu": "other operators"}
"""The class of what no row knows, by device."""
CLASSES = {"cuda": KERNELS, "cpu": OPERATORS}


def class_of(name: str, device: str) -> str:
    """The class of a kernel, or on a CPU of an operator."""
    return next(
        (found for found, pattern in CLASSES[device] if re.search(pattern, name, re.IGNORECASE)), OTHERS[device]
    )


def in_order(device: str) -> list[str]:
    """All classes of a device, each once."""
    return [*dict.fromkeys(found for found, _ in CLASSES[device]), OTHERS[device]]
