"""A plugin of Thunder with FlashAttention-4. Importing it imports neither PyTorch nor the library."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor."""
    return [ExecutorSpec("flash_attention_4", "thunder_flash_attention_4.executor:executor", summary="attention")]
