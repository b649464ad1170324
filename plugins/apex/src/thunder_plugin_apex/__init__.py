"""The fused normalizations and the fused cross entropy of NVIDIA Apex, as an executor for Thunder."""
