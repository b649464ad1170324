# trace: computation
# stage: acquired
# provenance: acquisition
# context: grad=True inference=False autocast=none cache=True
# storages: 0-2 4 6 11-12 3 5 7-10 13-14
import torch


def computation(
    x: "f32[2, 3, 8]",
    module_norm_weight: "f32[8] grad",
    module_norm_bias: "f32[8] grad",
    module_qkv_weight: "f32[24, 8] grad",
    module_cos: "f32[3, 4]",
    module_out_weight: "f32[8, 8] grad",
    module_out_bias: "f32[8] grad",
):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # tests/golden_programs.py:50 in Attention.forward (norm): q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        t0 = torch.nn.functional.layer_norm(x, (8,), module_norm_weight, module_norm_bias)  # f32[2, 3, 8] grad
        # tests/golden_programs.py:50 in Attention.forward (qkv): q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        t1 = torch.nn.functional.linear(t0, module_qkv_weight)  # bf16[2, 3, 24] grad
        # tests/golden_programs.py:50 in Attention.forward: q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        t2, t3, t4 = torch.chunk(t1, 3, -1)  # bf16[2, 3, 8] strides[72, 24, 1] shares t1 grad, bf16[2, 3, 8] strides[72, 24, 1] offset 8 shares t1 grad, bf16[2, 3, 8] strides[72, 24, 1] offset 16 shares t1 grad
        # tests/golden_programs.py:51 in Attention.forward.<locals>.<genexpr>: q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, k, v))
        t5 = torch.unflatten(t2, -1, (2, 4))  # bf16[2, 3, 2, 4] strides[72, 24, 4, 1] shares t1 grad
        t6 = torch.transpose(t5, 1, 2)  # bf16[2, 2, 3, 4] strides[72, 4, 24, 1] shares t1 grad
        t7 = torch.unflatten(t3, -1, (2, 4))  # bf16[2, 3, 2, 4] strides[72, 24, 4, 1] offset 8 shares t1 grad
        t8 = torch.transpose(t7, 1, 2)  # bf16[2, 2, 3, 4] strides[72, 4, 24, 1] offset 8 shares t1 grad
        t9 = torch.unflatten(t4, -1, (2, 4))  # bf16[2, 3, 2, 4] strides[72, 24, 4, 1] offset 16 shares t1 grad
        t10 = torch.transpose(t9, 1, 2)  # bf16[2, 2, 3, 4] strides[72, 4, 24, 1] offset 16 shares t1 grad
        # tests/golden_programs.py:52 in Attention.forward: q, k = q * self.cos, k * self.cos
        t11 = torch.mul(t6, module_cos)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1] grad
        t12 = torch.mul(t8, module_cos)  # f32[2, 2, 3, 4] strides[24, 4, 8, 1] grad
        # tests/golden_programs.py:53 in Attention.forward: y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        t13 = torch.nn.functional.scaled_dot_product_attention(t11, t12, t10, None, 0.0, True)  # bf16[2, 2, 3, 4] strides[24, 4, 8, 1] grad; random
        # tests/golden_programs.py:54 in Attention.forward: y = y.transpose(1, 2).reshape(batch, length, width)
        t14 = torch.transpose(t13, 1, 2)  # bf16[2, 3, 2, 4] shares t13 grad
        t15 = torch.reshape(t14, (2, 3, 8))  # bf16[2, 3, 8] shares t13 grad
    # tests/golden_programs.py:55 in Attention.forward: return x + self.out(y.float())
    t16 = t15.to(torch.float32)  # f32[2, 3, 8] grad
    # tests/golden_programs.py:55 in Attention.forward (out): return x + self.out(y.float())
    t17 = torch.nn.functional.linear(t16, module_out_weight, module_out_bias)  # f32[2, 3, 8] grad
    # tests/golden_programs.py:55 in Attention.forward: return x + self.out(y.float())
    t18 = torch.add(x, t17)  # f32[2, 3, 8] grad
    return (t18,)
