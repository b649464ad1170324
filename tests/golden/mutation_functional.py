# trace: computation
# stage: functional
# provenance: Functionalize
# context: grad=True inference=False autocast=none cache=True
# storages: 0-5 8 11 6 12-17 7 18-19 9-10
import torch
import thunder_core.passes.operations
import thunder_core.symbols


def computation(
    module_norm_num_batches_tracked: "i64[]",
    x: "f32[5, 4]",
    module_norm_running_mean: "f32[4]",
    module_norm_running_var: "f32[4]",
    module_norm_weight: "f32[4] grad",
    module_norm_bias: "f32[4] grad",
    module_total: "f32[4]",
):
    # tests/golden_programs.py:29 in Counter.forward (norm): y = self.norm(x)
    t0 = torch.add(module_norm_num_batches_tracked, 1)  # i64[]
    t1, t14, t15 = thunder_core.passes.operations.functional_call(torch.nn.functional.batch_norm, (1, 2), (x, module_norm_running_mean, module_norm_running_var, module_norm_weight, module_norm_bias, True), {})  # f32[5, 4] grad, f32[4], f32[4]
    # tests/golden_programs.py:30 in Counter.forward: y[0] = 1
    t2 = thunder_core.symbols.setitem_copy(t1, 0, 1)  # f32[5, 4] grad
    # tests/golden_programs.py:31 in Counter.forward: y[:, 1].mul_(2)
    t3 = t2[:, 1]  # f32[5] strides[4] offset 1 shares t2 grad
    t17 = torch.mul(t3, 2)  # f32[5] grad
    t4 = thunder_core.passes.operations.restride(t17, (4,))  # f32[5] strides[4] grad
    t19 = torch.select_scatter(t2, t4, 1, 1)  # f32[5, 4] grad
    # tests/golden_programs.py:32 in Counter.forward: self.total += y.detach().sum(0)
    t5 = torch.detach(t19)  # f32[5, 4] shares t19
    t6 = torch.sum(t5, 0)  # f32[4]
    t7 = torch.add(module_total, t6)  # f32[4]
    # tests/golden_programs.py:33 in Counter.forward: y = F.dropout(y.relu_(), 0.25)
    t8 = torch.relu(t19)  # f32[5, 4] grad
    t9 = torch.nn.functional.dropout(t8, 0.25, True)  # f32[5, 4] grad; random
    # tests/golden_programs.py:34 in Counter.forward: return y.transpose(0, 1) + self.total[:, None]
    t10 = torch.transpose(t9, 0, 1)  # f32[4, 5] strides[1, 4] shares t9 grad
    t11 = t7[:, None]  # f32[4, 1] shares t7
    t12 = torch.add(t10, t11)  # f32[4, 5] strides[1, 4] grad
    return (t12, t0, t14, t15, t7)
