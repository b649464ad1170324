"""PyTorch's own tests of ``torch.compile`` as programs: the same tests with ``thunder.jit`` in its place.

``python -m tests.pytorch_programs FOLDER`` takes a folder with test files, such as the folder ``test`` of a checkout of
PyTorch. A test that passes where "compiled" functions are the functions themselves is a program, with its expected
results as its assertions; it runs again with Thunder, and `outcome.py` sorts how that went.
"""
