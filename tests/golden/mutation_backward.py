# trace: backward
# stage: executable
# provenance: DeleteLastUse
# context: grad=False inference=False autocast=none cache=True
# storages: 1 4 12-13 20-21 19 26-29 22 30-42
import torch


def backward(
    x: "f32[5, 4]",
    module_norm_weight: "f32[4] grad",
    t14: "f32[4]",
    t15: "f32[4]",
    t1_1: "f32[4]",
    t1_2: "f32[4]",
    t8: "f32[5, 4] grad",
    t9_4: "f32[5, 4]",
    t12_cotangent: "f32[4, 5] strides[1, 4]",
):
    # tests/golden_programs.py:34 in Counter.forward: return y.transpose(0, 1) + self.total[:, None]
    t9_cotangent = torch.transpose(t12_cotangent, 0, 1)  # f32[5, 4] shares t12_cotangent
    del t12_cotangent
    # tests/golden_programs.py:33 in Counter.forward: y = F.dropout(y.relu_(), 0.25)
    t8_cotangent = torch.mul(t9_cotangent, t9_4)  # f32[5, 4]
    del t9_cotangent, t9_4
    t19_cotangent = torch.ops.aten.threshold_backward.default(t8_cotangent, t8, 0)  # f32[5, 4]
    del t8_cotangent, t8
    # tests/golden_programs.py:31 in Counter.forward: y[:, 1].mul_(2)
    t19_1 = torch.zeros((5,), dtype=torch.float32, layout=torch.strided, device=torch.device("cpu"))  # f32[5]
    t2_cotangent = torch.select_scatter(t19_cotangent, t19_1, 1, 1)  # f32[5, 4]
    del t19_1
    t4_cotangent = torch.select(t19_cotangent, 1, 1)  # f32[5] strides[4] offset 1 shares t19_cotangent
    del t19_cotangent
    t3_cotangent = torch.mul(t4_cotangent, 2)  # f32[5]
    del t4_cotangent
    t3_cotangent_1 = torch.reshape(t3_cotangent, (5, 1))  # f32[5, 1] shares t3_cotangent
    del t3_cotangent
    t3_cotangent_2 = torch.nn.functional.pad(t3_cotangent_1, (1, 2))  # f32[5, 4]
    del t3_cotangent_1
    t2_cotangent_1 = torch.add(t2_cotangent, t3_cotangent_2)  # f32[5, 4]
    del t2_cotangent, t3_cotangent_2
    # tests/golden_programs.py:30 in Counter.forward: y[0] = 1
    t2_cotangent_2 = torch.ops.aten.new_empty_strided.default(t2_cotangent_1, [5, 4], [4, 1])  # f32[5, 4]
    t2_cotangent_3 = torch.ops.aten.copy(t2_cotangent_2, t2_cotangent_1)  # f32[5, 4]
    del t2_cotangent_2, t2_cotangent_1
    t2_cotangent_4 = torch.select(t2_cotangent_3, 0, 0)  # f32[4] shares t2_cotangent_3
    t2_cotangent_5 = torch.clone(t2_cotangent_4, memory_format=torch.contiguous_format)  # f32[4]
    t2_cotangent_6 = torch.zeros_like(t2_cotangent_5)  # f32[4]
    del t2_cotangent_5
    t2_cotangent_7 = torch.ops.aten.copy(t2_cotangent_4, t2_cotangent_6)  # f32[4]
    del t2_cotangent_4, t2_cotangent_6
    t1_cotangent = torch.select_scatter(t2_cotangent_3, t2_cotangent_7, 0, 0)  # f32[5, 4]
    del t2_cotangent_3, t2_cotangent_7
    # tests/golden_programs.py:29 in Counter.forward (norm): y = self.norm(x)
    t1_cotangent_1, module_norm_weight_cotangent, module_norm_bias_cotangent = torch.ops.aten.native_batch_norm_backward.default(t1_cotangent, x, module_norm_weight, t14, t15, t1_1, t1_2, True, 1e-05, [False, True, True])  # f32[5, 4], f32[4], f32[4]
    return (module_norm_weight_cotangent, module_norm_bias_cotangent)
