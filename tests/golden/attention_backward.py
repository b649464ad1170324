# trace: backward
# stage: executable
# provenance: DeleteLastUse
# context: grad=False inference=False autocast=none cache=True
# storages: 0-2 6 11 19-20 15-16 5 17-18 9 21 10 22-42
import torch


def backward(
    x: "f32[2, 3, 8]",
    module_norm_weight: "f32[8] grad",
    module_norm_bias: "f32[8] grad",
    module_cos: "f32[3, 4]",
    module_out_weight: "f32[8, 8] grad",
    t0_1: "f32[2, 3, 1]",
    t0_2: "f32[2, 3, 1]",
    t0_bf16: "bf16[2, 3, 8] grad",
    module_qkv_weight_bf16: "bf16[24, 8] grad",
    t1: "bf16[2, 3, 24] grad",
    t11_bf16: "bf16[2, 2, 3, 4] strides[24, 4, 8, 1] grad",
    t12_bf16: "bf16[2, 2, 3, 4] strides[24, 4, 8, 1] grad",
    t13: "bf16[2, 2, 3, 4] strides[24, 4, 8, 1] grad",
    t13_1: "f32[2, 2, 3] strides[6, 1, 2]",
    t16: "f32[2, 3, 8] grad",
    t18_cotangent: "f32[2, 3, 8]",
):
    # tests/golden_programs.py:55 in Attention.forward (out): return x + self.out(y.float())
    t17_cotangent_1 = torch.reshape(t18_cotangent, (6, 8))  # f32[6, 8] shares t18_cotangent
    t16_cotangent = torch.matmul(t18_cotangent, module_out_weight)  # f32[2, 3, 8]
    del t18_cotangent, module_out_weight
    t17_cotangent_2 = torch.t(t17_cotangent_1)  # f32[8, 6] strides[1, 8] shares t18_cotangent
    t17_1 = torch.reshape(t16, (6, 8))  # f32[6, 8] shares t16
    del t16
    module_out_weight_cotangent = torch.mm(t17_cotangent_2, t17_1)  # f32[8, 8]
    del t17_cotangent_2, t17_1
    module_out_bias_cotangent = torch.sum(t17_cotangent_1, 0)  # f32[8]
    del t17_cotangent_1
    # tests/golden_programs.py:55 in Attention.forward: return x + self.out(y.float())
    t15_cotangent = t16_cotangent.to(torch.bfloat16)  # bf16[2, 3, 8]
    del t16_cotangent
    # tests/golden_programs.py:54 in Attention.forward: y = y.transpose(1, 2).reshape(batch, length, width)
    t14_cotangent = torch.reshape(t15_cotangent, (2, 3, 2, 4))  # bf16[2, 3, 2, 4] shares t15_cotangent
    del t15_cotangent
    t13_cotangent = torch.transpose(t14_cotangent, 1, 2)  # bf16[2, 2, 3, 4] strides[24, 4, 8, 1] shares t15_cotangent
    del t14_cotangent
    # tests/golden_programs.py:50 in Attention.forward: q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
    t2, t3, t4 = torch.chunk(t1, 3, -1)  # bf16[2, 3, 8] strides[72, 24, 1] shares t1 grad, bf16[2, 3, 8] strides[72, 24, 1] offset 8 shares t1 grad, bf16[2, 3, 8] strides[72, 24, 1] offset 16 shares t1 grad
    del t2, t3, t1
    # tests/golden_programs.py:51 in Attention.forward.<locals>.<genexpr>: q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, k, v))
    t9 = torch.unflatten(t4, -1, (2, 4))  # bf16[2, 3, 2, 4] strides[72, 24, 4, 1] offset 16 shares t1 grad
    del t4
    t10 = torch.transpose(t9, 1, 2)  # bf16[2, 2, 3, 4] strides[72, 4, 24, 1] offset 16 shares t1 grad
    del t9
    # tests/golden_programs.py:53 in Attention.forward: y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    t11_bf16_cotangent, t12_bf16_cotangent, t10_cotangent = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default(t13_cotangent, t11_bf16, t12_bf16, t10, t13, t13_1, 0.0, True, attn_mask=None)  # bf16[2, 2, 3, 4] strides[24, 4, 8, 1], bf16[2, 2, 3, 4] strides[24, 4, 8, 1], bf16[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t13_cotangent, t11_bf16, t12_bf16, t10, t13, t13_1
    t12_cotangent = t12_bf16_cotangent.to(torch.float32)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t12_bf16_cotangent
    t11_cotangent = t11_bf16_cotangent.to(torch.float32)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t11_bf16_cotangent
    # tests/golden_programs.py:52 in Attention.forward: q, k = q * self.cos, k * self.cos
    t12_cotangent_1 = torch.mul(t12_cotangent, module_cos)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t12_cotangent
    t8_cotangent = t12_cotangent_1.to(torch.bfloat16)  # bf16[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t12_cotangent_1
    t11_cotangent_1 = torch.mul(t11_cotangent, module_cos)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t11_cotangent, module_cos
    t6_cotangent = t11_cotangent_1.to(torch.bfloat16)  # bf16[2, 2, 3, 4] strides[24, 4, 8, 1]
    del t11_cotangent_1
    # tests/golden_programs.py:51 in Attention.forward.<locals>.<genexpr>: q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, k, v))
    t9_cotangent = torch.transpose(t10_cotangent, 1, 2)  # bf16[2, 3, 2, 4] shares t10_cotangent
    del t10_cotangent
    t4_cotangent = torch.reshape(t9_cotangent, (2, 3, 8))  # bf16[2, 3, 8] shares t10_cotangent
    del t9_cotangent
    t7_cotangent = torch.transpose(t8_cotangent, 1, 2)  # bf16[2, 3, 2, 4] shares t8_cotangent
    del t8_cotangent
    t3_cotangent = torch.reshape(t7_cotangent, (2, 3, 8))  # bf16[2, 3, 8] shares t8_cotangent
    del t7_cotangent
    t5_cotangent = torch.transpose(t6_cotangent, 1, 2)  # bf16[2, 3, 2, 4] shares t6_cotangent
    del t6_cotangent
    t2_cotangent = torch.reshape(t5_cotangent, (2, 3, 8))  # bf16[2, 3, 8] shares t6_cotangent
    del t5_cotangent
    # tests/golden_programs.py:50 in Attention.forward: q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
    t1_cotangent = torch.cat([t2_cotangent, t3_cotangent, t4_cotangent], 2)  # bf16[2, 3, 24]
    del t2_cotangent, t3_cotangent, t4_cotangent
    # tests/golden_programs.py:50 in Attention.forward (qkv): q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
    t1_cotangent_1 = torch.reshape(t1_cotangent, (6, 24))  # bf16[6, 24] shares t1_cotangent
    t0_bf16_cotangent = torch.matmul(t1_cotangent, module_qkv_weight_bf16)  # bf16[2, 3, 8]
    del t1_cotangent, module_qkv_weight_bf16
    t1_cotangent_2 = torch.t(t1_cotangent_1)  # bf16[24, 6] strides[1, 24] shares t1_cotangent
    del t1_cotangent_1
    t1_1 = torch.reshape(t0_bf16, (6, 8))  # bf16[6, 8] shares t0_bf16
    del t0_bf16
    module_qkv_weight_bf16_cotangent = torch.mm(t1_cotangent_2, t1_1)  # bf16[24, 8]
    del t1_cotangent_2, t1_1
    module_qkv_weight_cotangent = module_qkv_weight_bf16_cotangent.to(torch.float32)  # f32[24, 8]
    del module_qkv_weight_bf16_cotangent
    t0_cotangent = t0_bf16_cotangent.to(torch.float32)  # f32[2, 3, 8]
    del t0_bf16_cotangent
    # tests/golden_programs.py:50 in Attention.forward (norm): q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
    _, module_norm_weight_cotangent, module_norm_bias_cotangent = torch.ops.aten.native_layer_norm_backward.default(t0_cotangent, x, [8], t0_1, t0_2, module_norm_weight, module_norm_bias, [False, True, True])  # f32[8], f32[8]
    return (module_norm_weight_cotangent, module_norm_bias_cotangent, module_qkv_weight_cotangent, module_out_weight_cotangent, module_out_bias_cotangent)
