"""PyTorch's attention kernels, as an executor for Thunder."""
