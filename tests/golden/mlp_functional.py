# trace: computation
# stage: functional
# provenance: Functionalize
# context: grad=True inference=False autocast=none cache=True
# storages: 0-1 4 2-3 5-9
import torch


def computation(
    x: "f32[3, 4]",
    weights_0: "f32[6, 4] grad",
    weights_1: "f32[8, 6]",
):
    # tests/golden_programs.py:13 in mlp: x = F.gelu(F.linear(x, weight), approximate="tanh")
    t0 = torch.nn.functional.linear(x, weights_0)  # f32[3, 6] grad
    t1 = torch.nn.functional.gelu(t0, approximate='tanh')  # f32[3, 6] grad
    t2 = torch.nn.functional.linear(t1, weights_1)  # f32[3, 8] grad
    t3 = torch.nn.functional.gelu(t2, approximate='tanh')  # f32[3, 8] grad
    with torch.no_grad():
        # tests/golden_programs.py:16 in mlp: largest = x.view(rows, 2, columns // 2).amax(-1)
        t4 = t3.view((3, 2, 4))  # f32[3, 2, 4] shares t3 grad
        t5 = torch.amax(t4, -1)  # f32[3, 2]
    # tests/golden_programs.py:17 in mlp: return {"y": x * scale + x[:, :1], "largest": largest}
    t6 = torch.mul(t3, 0.5)  # f32[3, 8] grad
    t7 = t3[:, :1]  # f32[3, 1] strides[8, 1] shares t3 grad
    t8 = torch.add(t6, t7)  # f32[3, 8] grad
    return (t8, t5)
