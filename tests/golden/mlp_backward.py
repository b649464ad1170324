# trace: backward
# stage: executable
# provenance: DeleteLastUse
# context: grad=False inference=False autocast=none cache=True
# storages: 0 4 2 5 10-18
import torch


def backward(
    x: "f32[3, 4]",
    weights_1: "f32[8, 6]",
    t0: "f32[3, 6] grad",
    t2: "f32[3, 8] grad",
    t8_cotangent: "f32[3, 8]",
):
    # tests/golden_programs.py:17 in mlp: return {"y": x * scale + x[:, :1], "largest": largest}
    t7_cotangent = torch.sum(t8_cotangent, (1,), True)  # f32[3, 1]
    t3_cotangent = torch.nn.functional.pad(t7_cotangent, (0, 7))  # f32[3, 8]
    del t7_cotangent
    t6_cotangent_1 = torch.mul(t8_cotangent, 0.5)  # f32[3, 8]
    del t8_cotangent
    t3_cotangent_1 = torch.add(t3_cotangent, t6_cotangent_1)  # f32[3, 8]
    del t3_cotangent, t6_cotangent_1
    # tests/golden_programs.py:13 in mlp: x = F.gelu(F.linear(x, weight), approximate="tanh")
    t2_cotangent = torch.ops.aten.gelu_backward.default(t3_cotangent_1, t2, approximate='tanh')  # f32[3, 8]
    del t3_cotangent_1, t2
    t1_cotangent = torch.matmul(t2_cotangent, weights_1)  # f32[3, 6]
    del t2_cotangent, weights_1
    t0_cotangent = torch.ops.aten.gelu_backward.default(t1_cotangent, t0, approximate='tanh')  # f32[3, 6]
    del t1_cotangent, t0
    t0_cotangent_1 = torch.t(t0_cotangent)  # f32[6, 3] strides[1, 6] shares t0_cotangent
    del t0_cotangent
    weights_0_cotangent = torch.mm(t0_cotangent_1, x)  # f32[6, 4]
    return (weights_0_cotangent,)
