"""The models that ``python -m benchmarks report`` measures: what people train and run, with batch sizes of a GPU.

Most have a small variant for a CPU, whose name ends in ``-small``. All have random weights. BERT, GPT-2 and T5 are
trained with dropout, as they were published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TRAINING = ("training",)
BOTH = ("training", "forward")
GENERATION = ("generation",)
SUFFIX = "-small"


@dataclass(frozen=True)
class Sizes:
    """A model of a library with sizes.

    Attributes:
        model: its name in the `catalogue`.
        batch: number of sequences or images.
        sequence: tokens per sequence, for `GENERATION` those of the prompt; 0 for models without tokens.
        overrides: settings of the model.
    """

    model: str
    batch: int
    sequence: int = 0
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A model of the suite.

    Attributes:
        full: its sizes on a GPU.
        small: its sizes on a CPU; None if another model of the suite has the same structure.
        tasks: what is measured.
        precisions: those on a GPU; see `benchmarks.workload`.
    """

    full: Sizes
    small: Sizes | None
    tasks: tuple[str, ...] = BOTH
    precisions: tuple[str, ...] = ("bf16-autocast",)


_BERT_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_GPT2_DROPOUT = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
_SMALL = {"embedding": 64, "layers": 2, "heads": 4}
_SMALL_GROUPED = _SMALL | {"num_key_value_heads": 2, "intermediate_size": 128, "vocabulary": 500}
_GENERATING = {
    "embedding": 256,
    "layers": 4,
    "heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
    "vocabulary": 1000,
    # Token ids of a vocabulary of this size.
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _whisper(embedding: int, layers: int, heads: int, hidden: int) -> dict[str, int]:
    """Whisper's settings, which has its own for its encoder and its decoder."""
    both = {"layers": layers, "attention_heads": heads, "ffn_dim": hidden}
    parts = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in both.items()}
    return {"embedding": embedding} | parts


SUITE: dict[str, Member] = {
    "resnet-50": Member(
        Sizes("torchvision:resnet50", 64), Sizes("torchvision:resnet18", 4, overrides={"image": 64})
    ),
    "vit-large": Member(Sizes("timm:vit_large_patch16_224", 64), Sizes("timm:vit_tiny_patch16_224", 2)),
    "convnext-base": Member(Sizes("timm:convnext_base", 64), Sizes("timm:convnext_atto", 2)),
    "efficientnet-b0": Member(Sizes("timm:efficientnet_b0", 64), Sizes("timm:efficientnet_b0", 2)),
    "swin-base": Member(
        Sizes("timm:swin_base_patch4_window7_224", 64), Sizes("timm:swin_tiny_patch4_window7_224", 2)
    ),
    "bert-large": Member(
        Sizes("hf:bert", 16, 512, _BERT_DROPOUT | {"embedding": 1024, "layers": 24, "heads": 16,
                                                   "intermediate_size": 4096}),
        Sizes("hf:bert", 2, 32, _BERT_DROPOUT | _SMALL | {"intermediate_size": 128}),
    ),
    "gpt2-medium": Member(
        Sizes("hf:gpt2", 8, 1024, _GPT2_DROPOUT | {"embedding": 1024, "layers": 24, "heads": 16}),
        Sizes("hf:gpt2", 2, 32, _GPT2_DROPOUT | _SMALL),
    ),
    "qwen3-0.6b": Member(
        Sizes("hf:qwen3", 4, 2048, {"embedding": 1024, "layers": 28, "heads": 16, "num_key_value_heads": 8,
                                    "intermediate_size": 3072, "vocabulary": 151936, "head_dim": 128}),
        Sizes("hf:qwen3", 2, 32, _SMALL_GROUPED | {"head_dim": 16}),
    ),
    "mixtral-like": Member(
        Sizes("hf:mixtral", 4, 1024, {"embedding": 1024, "layers": 8, "heads": 16, "num_key_value_heads": 8,
                                      "intermediate_size": 3584, "vocabulary": 32000, "num_local_experts": 8}),
        Sizes("hf:mixtral", 2, 32, _SMALL_GROUPED | {"num_local_experts": 4}),
    ),
    "t5-large": Member(
        Sizes("hf:t5", 8, 512, {"embedding": 1024, "layers": 24, "heads": 16, "d_ff": 4096, "d_kv": 64,
                                "vocabulary": 32128, "dropout_rate": 0.1}),
        Sizes("hf:t5", 2, 16, {"embedding": 64, "layers": 2, "heads": 4, "d_ff": 128, "d_kv": 16,
                               "vocabulary": 500, "dropout_rate": 0.1}),
    ),
    "whisper": Member(
        Sizes("hf:whisper", 16, 128, _whisper(768, 12, 12, 3072)),
        Sizes("hf:whisper", 1, 16, _whisper(64, 2, 4, 128)),
    ),
    "sd-unet": Member(
        Sizes("diffusers:unet", 8, overrides={"cross_attention_dim": 768}),
        Sizes("diffusers:unet", 1, overrides={
            "sample_size": 16, "block_out_channels": [32, 64], "cross_attention_dim": 32, "norm_num_groups": 8,
            "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
        }),
    ),
    "nanogpt-163m": Member(
        Sizes("nanogpt", 16, 1024, {"embedding": 768, "layers": 12, "heads": 12, "vocabulary": 50304}),
        Sizes("nanogpt", 2, 32, _SMALL | {"vocabulary": 500}),
    ),
    "deeplab-v3": Member(
        Sizes("torchvision:deeplabv3_resnet50", 16),
        Sizes("torchvision:deeplabv3_mobilenet_v3_large", 2, overrides={"image": 64}),
    ),
    "tiny-llama-1.1b": Member(
        Sizes("tiny-llama-1.1b", 4, 2048), Sizes("small-llama", 2, 64), TRAINING, ("bf16-true", "bf16-autocast")
    ),
    "Llama-2-7b-hf": Member(Sizes("Llama-2-7b-hf", 1, 4096), None, TRAINING, ("bf16-true",)),
    # Each token reads 1.2 billion weights; the embedding has 0.3 billion more.
    "llama-1.2b": Member(
        Sizes("hf:llama", 1, 128, {"embedding": 2048, "layers": 16, "heads": 32, "num_key_value_heads": 8,
                                   "intermediate_size": 8192, "vocabulary": 128256, "head_dim": 64}),
        Sizes("hf:llama", 1, 12, _GENERATING),
        GENERATION,
        ("bf16-true",),
    ),
}  # fmt: skip


def variants() -> dict[str, Sizes]:
    """The models of the suite and their small variants, by name."""
    full = {name: member.full for name, member in SUITE.items()}
    return full | {name + SUFFIX: member.small for name, member in SUITE.items() if member.small}
