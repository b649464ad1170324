"""Rotary position embeddings of queries and keys. Sizes are batch, query heads, key heads, tokens, head size."""

from __future__ import annotations

import torch

from benchmarks.operators.case import Case, NotAvailable, Problem, normal

CUDA = ((4, 32, 4, 2048, 64), (1, 32, 32, 4096, 128))
CPU = ((1, 4, 2, 16, 32),)
Pair = tuple[torch.Tensor, torch.Tensor]


def rope_of_lit_gpt(dtype: torch.dtype, *sizes: int) -> Problem:
    """LitGPT's function, called for queries and keys."""
    from benchmarks.models.lit_gpt import gpt_and_config

    try:
        gpt_and_config()
    except ModuleNotFoundError as error:
        raise NotAvailable(str(error)) from error
    from litgpt.model import apply_rope

    def rope(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
        return apply_rope(query, cos, sin), apply_rope(key, cos, sin)

    return _problem(rope, dtype, *sizes)


def rope_of_hugging_face(dtype: torch.dtype, *sizes: int) -> Problem:
    """The function of Hugging Face's Llama."""
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    except ImportError as error:
        raise NotAvailable("transformers is not installed") from error

    def rope(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
        rotated: Pair = apply_rotary_pos_emb(query, key, cos, sin)
        return rotated

    return _problem(rope, dtype, *sizes)


def _problem(program: object, dtype: torch.dtype, batch: int, heads: int, keys: int, tokens: int, size: int) -> Problem:
    tables = _tables(dtype, tokens, size)
    rotated = [normal(batch, count, tokens, size, dtype=dtype) for count in (heads, keys)]
    # Backward is the inverse rotation, which reads only the tables.
    kernel = lambda f, *arguments: f.liger_rope(*arguments)  # noqa: E731
    return Problem(program, (*rotated, *tables), saved=tables, liger=kernel)  # type: ignore[arg-type]


def _tables(dtype: torch.dtype, tokens: int, size: int) -> Pair:
    frequencies = 10000.0 ** -(torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos().to(dtype)[None], angles.sin().to(dtype)[None]


CASES = (
    Case("rotary_embedding", "LitGPT's apply_rope", rope_of_lit_gpt, CUDA, CPU),
    Case("rotary_embedding", "Hugging Face's apply_rotary_pos_emb", rope_of_hugging_face, CUDA[:1], CPU),
)
