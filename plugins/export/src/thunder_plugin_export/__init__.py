"""Programs of `torch.export` as programs of Thunder: ``thunder.jit(exported)``."""
