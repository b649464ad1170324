"""Without a GPU the kernels run in Triton's interpreter, which lacks three things that Liger needs."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy
    import triton.language as tl
    from liger_kernel.ops import cross_entropy, geglu, layer_norm, rms_norm
    from triton.runtime import interpreter

    convert, patch_tensor = interpreter._implicit_cvt, interpreter._patch_lang_tensor

    def converted(argument):
        """Floats are float32 scalars, as on a GPU, and not Python's."""
        if type(argument) is not float:
            return convert(argument)
        return tl.tensor(interpreter.TensorHandle(numpy.array([argument], dtype=numpy.float32), tl.float32), tl.float32)

    def patched(tensor, scope):
        """Bounds of loops: NumPy converts arrays of one element to numbers no more."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._implicit_cvt, interpreter._patch_lang_tensor = converted, patched
    rms_norm.rsqrt = layer_norm.rsqrt = lambda x: tl.rsqrt(x)  # functions of CUDA's library return None
    geglu.tanh = cross_entropy.tanh = lambda x: 2 * tl.sigmoid(2 * x) - 1
