"""An executor with the fused normalizations and cross entropy of NVIDIA Apex."""
