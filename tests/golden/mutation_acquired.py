# trace: computation
# stage: acquired
# provenance: acquisition
# context: grad=True inference=False autocast=none cache=True
# storages: 0-5 8 6-7 9-10
import torch
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
    t0 = module_norm_num_batches_tracked.add_(1)  # i64[] shares module_norm_num_batches_tracked
    t1 = torch.nn.functional.batch_norm(x, module_norm_running_mean, module_norm_running_var, module_norm_weight, module_norm_bias, True)  # f32[5, 4] grad; writes module_norm_running_mean, module_norm_running_var
    # tests/golden_programs.py:30 in Counter.forward: y[0] = 1
    t2 = thunder_core.symbols.setitem(t1, 0, 1)  # f32[5, 4] shares t1 grad; writes t1
    # tests/golden_programs.py:31 in Counter.forward: y[:, 1].mul_(2)
    t3 = t2[:, 1]  # f32[5] strides[4] offset 1 shares t1 grad
    t4 = t3.mul_(2)  # f32[5] strides[4] offset 1 shares t1 grad
    # tests/golden_programs.py:32 in Counter.forward: self.total += y.detach().sum(0)
    t5 = torch.detach(t2)  # f32[5, 4] shares t1
    t6 = torch.sum(t5, 0)  # f32[4]
    t7 = module_total.add_(t6)  # f32[4] shares module_total
    # tests/golden_programs.py:33 in Counter.forward: y = F.dropout(y.relu_(), 0.25)
    t8 = t2.relu_()  # f32[5, 4] shares t1 grad
    t9 = torch.nn.functional.dropout(t8, 0.25, True)  # f32[5, 4] grad; random
    # tests/golden_programs.py:34 in Counter.forward: return y.transpose(0, 1) + self.total[:, None]
    t10 = torch.transpose(t9, 0, 1)  # f32[4, 5] strides[1, 4] shares t9 grad
    t11 = t7[:, None]  # f32[4, 1] shares module_total
    t12 = torch.add(t10, t11)  # f32[4, 5] strides[1, 4] grad
    return (t12,)
