"""Hugging Face architectures with tiny random configurations, one row each; nothing is downloaded.

To add one: a row with the model class, the configuration class, the kind of input and what makes it tiny.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tests.models.inputs import VOCABULARY
from thunder_testing import Comparison

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_DECODER = {**_COMMON, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
_BART = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
       "decoder_start_token_id": 0}  # fmt: skip
_VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
           "image_size": 32, "patch_size": 8}  # fmt: skip
_SPEECH = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "conv_dim": (16, 16), "conv_stride": (4, 4), "conv_kernel": (8, 4), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip
_MAMBA = {"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}
_TWO_TOWERS = {
    "text_config": {**_COMMON, "projection_dim": 16},
    "vision_config": {**_VISION, "projection_dim": 16},
}
_DROPS_LAYERS = ("training",)  # decided by a random tensor each time, with the default probability
_EQUAL = Comparison()
EVERY_LAYER = {"layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@dataclass(frozen=True)
class Row:
    """A model to test.

    Attributes:
        model: name of the model's class in ``transformers``.
        config: name of the configuration's class in ``transformers``.
        inputs: kind of input, see ``tests.models.inputs``.
        options: arguments of the configuration.
        nested: configuration classes of the options that are configurations themselves.
        calls: number of calls, the last a cache hit; more for models that change themselves in their first call.
        comparison: how values are compared in evaluation mode; with tolerances for models that choose another algorithm
            where `torch.compiler.is_compiling()`.
        may_refuse: cases in which the program branches on values of tensors, so that a DataDependentError is right too.
    """

    model: str
    config: str
    inputs: str
    options: dict[str, Any]
    nested: dict[str, str] = field(default_factory=dict)
    calls: int = 2
    comparison: Comparison = _EQUAL
    may_refuse: tuple[str, ...] = ()

    def build(self, **overrides: Any) -> torch.nn.Module:
        """The model with random weights from a fixed seed, in evaluation mode."""
        import transformers

        options = {**self.options, **overrides}
        for name, kind in self.nested.items():
            options[name] = getattr(transformers, kind)(**options[name])
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**options)
        model: torch.nn.Module = getattr(transformers, self.model)(config)
        return model.eval()


ROWS: dict[str, Row] = {
    # encoders of text
    "bert": Row("BertForMaskedLM", "BertConfig", "masked_text", _COMMON),
    "roberta": Row("RobertaModel", "RobertaConfig", "masked_text", _COMMON),
    "xlm-roberta": Row("XLMRobertaModel", "XLMRobertaConfig", "masked_text", _COMMON),
    "camembert": Row("CamembertModel", "CamembertConfig", "masked_text", _COMMON),
    "distilbert": Row("DistilBertModel", "DistilBertConfig", "masked_text",
                      {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37}),
    "electra": Row("ElectraModel", "ElectraConfig", "masked_text", {**_COMMON, "embedding_size": 32}),
    "albert": Row("AlbertModel", "AlbertConfig", "masked_text", {**_COMMON, "embedding_size": 16}),
    "deberta": Row("DebertaModel", "DebertaConfig", "masked_text",
                   {**_COMMON, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "deberta-v2": Row("DebertaV2Model", "DebertaV2Config", "masked_text",
                      {**_COMMON, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "mpnet": Row("MPNetModel", "MPNetConfig", "masked_text", _COMMON),
    "convbert": Row("ConvBertModel", "ConvBertConfig", "masked_text", {**_COMMON, "embedding_size": 32}),
    "roformer": Row("RoFormerModel", "RoFormerConfig", "masked_text", {**_COMMON, "embedding_size": 32}),
    "xlnet": Row("XLNetModel", "XLNetConfig", "text",
                 {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37}),
    "mobilebert": Row("MobileBertModel", "MobileBertConfig", "masked_text",
                      {**_COMMON, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}),
    "squeezebert": Row("SqueezeBertModel", "SqueezeBertConfig", "masked_text",
                       {**_COMMON, "embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2,
                        "post_attention_groups": 2, "intermediate_groups": 1, "output_groups": 1}),
    "fnet": Row("FNetModel", "FNetConfig", "text", _COMMON),
    "modernbert": Row("ModernBertModel", "ModernBertConfig", "masked_text", {**_COMMON, "cls_token_id": 1,
                                                                               "sep_token_id": 2}),
    "longformer": Row("LongformerModel", "LongformerConfig", "long_text", {**_COMMON, "attention_window": 4},
                      may_refuse=("forward", "training")),
    "big_bird": Row("BigBirdModel", "BigBirdConfig", "long_text", {**_COMMON, "attention_type": "original_full"}),
    "funnel": Row("FunnelBaseModel", "FunnelConfig", "masked_text",
                  {"vocab_size": VOCABULARY, "d_model": 32, "block_sizes": [1, 1], "n_head": 4, "d_head": 8,
                   "d_inner": 37}),
    "tapas": Row("TapasModel", "TapasConfig", "masked_text", {**_COMMON, "type_vocab_sizes": [3, 5, 7, 2, 2, 2, 2]}),
    # decoders of text
    "gpt2": Row("GPT2LMHeadModel", "GPT2Config", "text", _GPT2),
    "gpt_neo": Row("GPTNeoForCausalLM", "GPTNeoConfig", "text",
                   {"vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4,
                    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64}),
    "gpt_neox": Row("GPTNeoXForCausalLM", "GPTNeoXConfig", "text", _COMMON),
    "gptj": Row("GPTJForCausalLM", "GPTJConfig", "text", {**_GPT2, "rotary_dim": 4}),
    "codegen": Row("CodeGenForCausalLM", "CodeGenConfig", "text", {**_GPT2, "rotary_dim": 4}),
    "gpt_bigcode": Row("GPTBigCodeForCausalLM", "GPTBigCodeConfig", "text", _GPT2),
    "opt": Row("OPTForCausalLM", "OPTConfig", "masked_text",
               {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                "ffn_dim": 37, "max_position_embeddings": 64, "word_embed_proj_dim": 32}),
    "bloom": Row("BloomForCausalLM", "BloomConfig", "masked_text",
                 {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "falcon": Row("FalconForCausalLM", "FalconConfig", "text",
                  {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}),
    "mpt": Row("MptForCausalLM", "MptConfig", "text",
               {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    "llama": Row("LlamaForCausalLM", "LlamaConfig", "masked_text", _DECODER),
    "mistral": Row("MistralForCausalLM", "MistralConfig", "text", {**_DECODER, "sliding_window": 4}),
    "qwen2": Row("Qwen2ForCausalLM", "Qwen2Config", "masked_text", _DECODER),
    "qwen3": Row("Qwen3ForCausalLM", "Qwen3Config", "text", {**_DECODER, "head_dim": 8}),
    "gemma": Row("GemmaForCausalLM", "GemmaConfig", "text", {**_DECODER, "head_dim": 8}),
    "gemma2": Row("Gemma2ForCausalLM", "Gemma2Config", "masked_text", {**_DECODER, "head_dim": 8, "sliding_window": 4}),
    "gemma3": Row("Gemma3ForCausalLM", "Gemma3TextConfig", "text", {**_DECODER, "head_dim": 8, "sliding_window": 4}),
    "phi": Row("PhiForCausalLM", "PhiConfig", "text", _COMMON),
    "phi3": Row("Phi3ForCausalLM", "Phi3Config", "text", _DECODER),
    "olmo": Row("OlmoForCausalLM", "OlmoConfig", "text", _DECODER),
    "olmo2": Row("Olmo2ForCausalLM", "Olmo2Config", "text", _DECODER),
    "stablelm": Row("StableLmForCausalLM", "StableLmConfig", "text", _DECODER),
    "cohere": Row("CohereForCausalLM", "CohereConfig", "text", _DECODER),
    "starcoder2": Row("Starcoder2ForCausalLM", "Starcoder2Config", "text", _DECODER),
    "granite": Row("GraniteForCausalLM", "GraniteConfig", "text", _DECODER),
    "glm": Row("GlmForCausalLM", "GlmConfig", "text", {**_DECODER, "head_dim": 8}),
    "smollm3": Row("SmolLM3ForCausalLM", "SmolLM3Config", "text", _DECODER),
    # An associative scan where eager loops, in decoding too since transformers 5.23.
    "mamba": Row("MambaForCausalLM", "MambaConfig", "text", _MAMBA, comparison=Comparison(rtol=1e-5, atol=1e-6)),
    "mamba2": Row("Mamba2ForCausalLM", "Mamba2Config", "text",
                  {**_MAMBA, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
    "rwkv": Row("RwkvForCausalLM", "RwkvConfig", "text",
                {"vocab_size": VOCABULARY, "hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2,
                 "intermediate_size": 37, "context_length": 64}, calls=3),
    # mixtures of experts
    "mixtral": Row("MixtralForCausalLM", "MixtralConfig", "text", {**_DECODER, "num_local_experts": 4}),
    "qwen2_moe": Row("Qwen2MoeForCausalLM", "Qwen2MoeConfig", "text",
                     {**_DECODER, **_EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3_moe": Row("Qwen3MoeForCausalLM", "Qwen3MoeConfig", "text", {**_DECODER, **_EXPERTS, "head_dim": 8}),
    "olmoe": Row("OlmoeForCausalLM", "OlmoeConfig", "text", {**_DECODER, **_EXPERTS}),
    # from text to text
    "t5": Row("T5ForConditionalGeneration", "T5Config", "encoder_decoder", _T5),
    "mt5": Row("MT5ForConditionalGeneration", "MT5Config", "encoder_decoder", _T5),
    "bart": Row("BartForConditionalGeneration", "BartConfig", "encoder_decoder", _BART),
    "mbart": Row("MBartForConditionalGeneration", "MBartConfig", "encoder_decoder", _BART),
    "marian": Row("MarianMTModel", "MarianConfig", "encoder_decoder", _BART),
    "pegasus": Row("PegasusForConditionalGeneration", "PegasusConfig", "encoder_decoder", _BART),
    "m2m_100": Row("M2M100ForConditionalGeneration", "M2M100Config", "encoder_decoder", _BART,
                   may_refuse=_DROPS_LAYERS),
    "blenderbot": Row("BlenderbotForConditionalGeneration", "BlenderbotConfig", "encoder_decoder", _BART),
    # vision
    "vit": Row("ViTForImageClassification", "ViTConfig", "image", _VISION, calls=3),
    "deit": Row("DeiTModel", "DeiTConfig", "image", _VISION),
    "beit": Row("BeitModel", "BeitConfig", "image", {**_VISION, "use_relative_position_bias": True}),
    "dinov2": Row("Dinov2Model", "Dinov2Config", "image", _VISION),
    "swin": Row("SwinModel", "SwinConfig", "image",
                {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2],
                 "window_size": 4}),
    "swinv2": Row("Swinv2Model", "Swinv2Config", "image",
                  {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2],
                   "window_size": 4}),
    "convnext": Row("ConvNextModel", "ConvNextConfig", "image",
                    {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "layer_scale_init_value": 1.0}),
    "resnet": Row("ResNetForImageClassification", "ResNetConfig", "image",
                  {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, calls=3),
    "regnet": Row("RegNetModel", "RegNetConfig", "image",
                  {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8}),
    "segformer": Row("SegformerForSemanticSegmentation", "SegformerConfig", "image",
                     {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "hidden_sizes": [8, 16],
                      "num_attention_heads": [1, 2], "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2],
                      "decoder_hidden_size": 16}, calls=3),
    "mobilevit": Row("MobileViTModel", "MobileViTConfig", "image",
                     {"image_size": 32, "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
                      "num_attention_heads": 2, "output_stride": 8}),
    "efficientnet": Row("EfficientNetModel", "EfficientNetConfig", "image",
                        {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320,
                         "strides": [1, 1, 1, 2, 1, 2, 1]}),
    "poolformer": Row("PoolFormerModel", "PoolFormerConfig", "image",
                      {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "layer_scale_init_value": 1.0}),
    "pvt": Row("PvtModel", "PvtConfig", "image",
               {"image_size": 32, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
                "num_attention_heads": [1, 1, 2, 2], "patch_sizes": [4, 2, 2, 2]}),
    "vit_mae": Row("ViTMAEModel", "ViTMAEConfig", "image", _VISION),
    "yolos": Row("YolosForObjectDetection", "YolosConfig", "image", {**_VISION, "image_size": [32, 32],
                                                                     "num_detection_tokens": 3}),
    "detr": Row("DetrModel", "DetrConfig", "image",
                {"use_timm_backbone": False, "use_pretrained_backbone": False, "d_model": 32, "encoder_layers": 1,
                 "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                 "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "num_queries": 4,
                 "backbone_config": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
                                     "out_features": ["stage2"]}},
                nested={"backbone_config": "ResNetConfig"}),
    # images and text
    "clip": Row("CLIPModel", "CLIPConfig", "image_and_text", {**_TWO_TOWERS, "projection_dim": 16}),
    "siglip": Row("SiglipModel", "SiglipConfig", "image_and_text", _TWO_TOWERS),
    "blip": Row("BlipForConditionalGeneration", "BlipConfig", "image_and_text",
                {**_TWO_TOWERS, "projection_dim": 16, "text_config": {**_COMMON, "encoder_hidden_size": 32,
                                                                      "projection_dim": 16}}),
    "vilt": Row("ViltModel", "ViltConfig", "image_and_text", {**_COMMON, **_VISION}),
    # speech and time series
    "whisper": Row("WhisperForConditionalGeneration", "WhisperConfig", "spectrogram",
                   {**{name: value for name, value in _BART.items() if name != "max_position_embeddings"},
                    "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 20}),
    "wav2vec2": Row("Wav2Vec2ForCTC", "Wav2Vec2Config", "waveform", _SPEECH, may_refuse=_DROPS_LAYERS),
    "hubert": Row("HubertModel", "HubertConfig", "waveform", _SPEECH, may_refuse=_DROPS_LAYERS),
    "wavlm": Row("WavLMModel", "WavLMConfig", "waveform", _SPEECH, may_refuse=_DROPS_LAYERS),
    "sew": Row("SEWModel", "SEWConfig", "waveform", {**_SPEECH, "squeeze_factor": 2}, may_refuse=_DROPS_LAYERS),
    "patchtst": Row("PatchTSTModel", "PatchTSTConfig", "series",
                    {"num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8,
                     "d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 16}),
}  # fmt: skip
