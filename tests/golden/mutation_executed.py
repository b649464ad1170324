# trace: forward
# stage: executable
# provenance: DeleteLastUse
# context: grad=False inference=False autocast=none cache=True
# storages: 0-5 8 11 6 20-21 12-17 7 18-19 23-26 9-10
import torch
import thunder_core.passes.operations
import thunder_core.symbols


def forward(
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
    del module_norm_num_batches_tracked
    (t1, t1_1, t1_2), t14, t15 = thunder_core.passes.operations.functional_call(torch.native_batch_norm, (3, 4), (x, module_norm_weight, module_norm_bias, module_norm_running_mean, module_norm_running_var, True, 0.1, 1e-05), {})  # f32[5, 4] grad, f32[4], f32[4], f32[4], f32[4]
    del module_norm_bias, module_norm_running_mean, module_norm_running_var
    # tests/golden_programs.py:30 in Counter.forward: y[0] = 1
    t2 = thunder_core.symbols.setitem_copy(t1, 0, 1)  # f32[5, 4] grad
    del t1
    # tests/golden_programs.py:31 in Counter.forward: y[:, 1].mul_(2)
    t3 = t2[:, 1]  # f32[5] strides[4] offset 1 shares t2 grad
    t17 = torch.mul(t3, 2)  # f32[5] grad
    del t3
    t4 = thunder_core.passes.operations.restride(t17, (4,))  # f32[5] strides[4] grad
    del t17
    t19 = torch.select_scatter(t2, t4, 1, 1)  # f32[5, 4] grad
    del t2, t4
    # tests/golden_programs.py:32 in Counter.forward: self.total += y.detach().sum(0)
    t5 = torch.detach(t19)  # f32[5, 4] shares t19
    t6 = torch.sum(t5, 0)  # f32[4]
    del t5
    t7 = torch.add(module_total, t6)  # f32[4]
    del module_total, t6
    # tests/golden_programs.py:33 in Counter.forward: y = F.dropout(y.relu_(), 0.25)
    t8 = torch.relu(t19)  # f32[5, 4] grad
    del t19
    t9_1 = torch.empty((5, 4), dtype=torch.bool, device=torch.device("cpu"))  # bool[5, 4]
    t9_2 = torch.bernoulli(t9_1, 0.75)  # bool[5, 4]; random
    del t9_1
    t9_3 = t9_2.to(torch.float32)  # f32[5, 4]
    del t9_2
    t9_4 = torch.div(t9_3, 0.75)  # f32[5, 4]
    del t9_3
    t9 = torch.mul(t8, t9_4)  # f32[5, 4] grad
    # tests/golden_programs.py:34 in Counter.forward: return y.transpose(0, 1) + self.total[:, None]
    t10 = torch.transpose(t9, 0, 1)  # f32[4, 5] strides[1, 4] shares t9 grad
    del t9
    t11 = t7[:, None]  # f32[4, 1] shares t7
    t12 = torch.add(t10, t11)  # f32[4, 5] strides[1, 4] grad
    return (t12, t0, t14, t15, t7, x, module_norm_weight, t14, t15, t1_1, t1_2, t8, t9_4)
