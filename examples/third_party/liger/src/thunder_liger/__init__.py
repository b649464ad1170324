"""A plugin of Thunder with the kernels of Liger. Importing it imports neither PyTorch nor Liger."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    return [ExecutorSpec("liger", "thunder_liger.executor:executor", summary="norms, gated activations and losses")]
