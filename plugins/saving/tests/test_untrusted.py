"""Files of others: loading runs no code of theirs, and what is not a trace is a TraceSyntaxError."""

from __future__ import annotations

import base64
import io
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import TraceError, TraceSyntaxError
from thunder_core.ir.printer import print_trace
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.symbols.recording import recorded
from thunder_saving.files import load_trace, save_trace
from thunder_testing import hand_built as build

RUNS = {
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "socket.connect", "os.remove",
    "os.rename", "os.mkdir", "shutil.rmtree", "ctypes.dlopen", "webbrowser.open", "pty.spawn",
}  # fmt: skip
"""Events of `sys.audit` that no load of a trace causes."""

MODULE = """
import os
os.environ["MARKED"] = "imported"

def run(*args, **kwargs):
    os.environ["MARKED"] = "called"
    return args[0]

class Point(tuple):
    def __new__(cls, *args):
        run(None)
        return super().__new__(cls, args)

class Function:
    apply = staticmethod(run)
"""


class Watch:
    """Notes events while it is active; a hook of `sys.audit` cannot be removed."""

    active = False
    events: list[str]

    def __call__(self, event: str, args: Any) -> None:
        if self.active and (event in RUNS or (event == "open" and _writes(args))):
            self.events.append(event)


def _writes(args: Any) -> bool:
    flags = args[2] if isinstance(args[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


watch = Watch()
sys.addaudithook(watch)


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules; no test may import them, or cause one of the events."""
    (tmp_path / "marked_module.py").write_text(MODULE)
    (tmp_path / "marked_package").mkdir()
    (tmp_path / "marked_package" / "__init__.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("MARKED", raising=False)
    (tmp_path / "first.py").write_text(source())
    load_trace(tmp_path / "first.py")  # imports what PyTorch imports on first use
    watch.events = []
    yield tmp_path
    assert watch.events == []
    assert "MARKED" not in os.environ
    assert not [name for name in sys.modules if name.startswith("marked_")]


def load(path: Path) -> Any:
    """`load_trace`, watched."""
    watch.active = True
    try:
        return load_trace(path)
    finally:
        watch.active = False


def source(*lines: str, top: str = "", inputs: str = 'x: "f32[3]"', result: str = "x", header: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    start = f"# trace: computation\n# stage: acquired\n{header}import torch\n{top}\n\n"
    return f"{start}def computation({inputs}):\n{body}    return {result}\n"


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, ("echo",)


def _encoded(value: Any) -> str:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


CALLS = (
    # modules and builtins
    "os.system('echo')",
    "subprocess.Popen(['echo'])",
    "subprocess.run(['echo'])",
    "builtins.eval('1')",
    "builtins.exec('import marked_module')",
    "builtins.__import__('marked_module')",
    "eval('1')",
    "exec('import marked_module')",
    "__import__('marked_module')",
    "open('created', 'w')",
    "print(x)",
    "importlib.import_module('marked_module')",
    "marked_module.run(x)",
    "marked_package.run(x)",
    "marked_package.inner.run(x)",
    "marked_module.Function.apply(x)",
    "pickle.loads(b'')",
    "shutil.rmtree('.')",
    "ctypes.CDLL('libc.so.6')",
    "runpy.run_path('marked_module.py')",
    "functools.partial(os.system, 'echo')()",
    # ways to modules through PyTorch
    "torch.os.system('echo')",
    "torch.sys.exit()",
    "torch.builtins.eval('1')",
    "torch.serialization.os.system('echo')",
    "torch.nn.functional.importlib.import_module('marked_module')",
    "torch.utils.data.os.system('echo')",
    "torch.Tensor.__init__.__globals__",
    "torch.__builtins__",
    "torch.__dict__.get('os')",
    "torch.nn.Module.__init__(x)",
    # functions of PyTorch that are not operators
    "torch.load('created')",
    "torch.save(x, 'created')",
    "torch.hub.load('a/b', 'c')",
    "torch.hub.download_url_to_file('file:///etc/passwd', 'created')",
    "torch.jit.load('created')",
    "torch.jit.script(x)",
    "torch.compile(x)",
    "torch.package.PackageImporter('created')",
    "torch.ops.load_library('created')",
    "torch.classes.load_library('created')",
    "torch.utils.cpp_extension.load('a', ['b'])",
    "torch.utils.cpp_extension.load_inline('a', 'b')",
    "torch.utils.checkpoint.checkpoint(marked_module.run, x)",
    "torch.multiprocessing.spawn(x)",
    "torch.distributed.init_process_group('gloo')",
    "torch.library.custom_op('a::b', x)",
    "torch._dynamo.optimize()",
    "torch._C._jit_set_profiling_mode(True)",
    "torch.set_default_dtype(torch.float64)",
    "torch.use_deterministic_algorithms(True)",
    "torch.vmap(x)",
    "torch.func.functional_call(x, {})",
    "torch.autograd.Function.apply(x)",
    "torch.from_file('created', True, 10)",
    "torch.frombuffer(b'1234', dtype=torch.float32)",
    "torch._from_blob(1, [1])",
    "torch.nn.Linear(2, 2)",
    # operators that read or write files or memory
    "torch.ops.aten.save(x, 'created')",
    "torch.ops.aten.save.default(x, 'created')",
    "torch.ops.aten.from_file.default('created', True, 10)",
    "torch.ops.debugprims.load_tensor.default('created', [1], [1], dtype=torch.float32, device='cpu')",
    "torch.ops.inductor._reinterpret_tensor.default(x, [9], [1], 9)",
    "torch.ops.import_module('marked_module')",
    "torch.ops.marked_module.run(x)",
    "torch.ops.aten.__class__(x)",
    "torch.ops.aten.add.__class__(x)",
    # methods and attributes of tensors
    "x.__class__",
    "x.__class__.__base__",
    "x.__reduce_ex__(4)",
    "x.__setstate__(())",
    "x.__init_subclass__()",
    "x.__getattribute__('shape')",
    "x.__setattr__('a', 1)",
    "x.apply_(marked_module.run)",
    "x.map_(x, os.system)",
    "x.register_hook(os.system)",
    "x.new(cdata=1)",
    "x.data_ptr()",
    "x.share_memory_()",
    "x.as_subclass(marked_module.Point)",
    "().__class__.__base__.__subclasses__()",
    "(1).__class__",
    "''.join(['a'])",
    "'{0.__class__}'.format(x)",
    # Thunder's own
    "thunder_core.symbols.checks.check_sizes(0, (\"__import__('marked_module')\",), {}, 'item', (x,), ())",
    "thunder_core.symbols.checks.unmet((\"__import__('marked_module')\",), {})",
    "thunder_core.symbols.recorded(x)",
    "thunder_core.ir.program.compile_source('import marked_module', 'f', {}, title='')",
    "thunder_core.plugins.importing.imported('marked_module')",
    "thunder_core.errors.os.system('echo')",
    "thunder_saving.files.load_trace('created')",
    "thunder_plugin_inductor.artifacts.load(b'')",
    "thunder_plugin_composites.symbols.norms.torch.os.system('echo')",
    "thunder.jit(x)",
    # arguments
    "torch.add(x, os.system('echo'))",
    "torch.add(x, marked_module.Point(1))",
    "torch.add(x, alpha=__import__('marked_module'))",
    "torch.add(x, **marked_module.run(x))",
    "torch.add(x, **{1: 2})",
    "torch.add(*[x, x])",
    "torch.add(x, [y for y in [1]])",
    "torch.add(x, (lambda: 1)())",
    "torch.add(x, f'{marked_module}')",
    "torch.add(x, 1 if x else 2)",
    "torch.add(x, (y := 1))",
    "torch.add(x, x.shape[0])",
    "torch.add(x, 10 ** 10 ** 10)",
    "torch.add(x, [0] * 10 ** 12)",
    "torch.add(x, bytes(10 ** 12))",
    "torch.add(x, bytearray(10))",
    "torch.add(x, type('A', (), {}))",
    "torch.reshape(x, torch.Size(range(1000000000000)))",
    "torch.reshape(x, range(1000000000000))",
    "torch.reshape(x, (9223372036854775808,))",
    "torch.nn.functional.triplet_margin_with_distance_loss(x, x, x, distance_function=os.system)",
    "torch.nn.functional.triplet_margin_with_distance_loss(x, x, x, distance_function=torch.load)",
    # other expressions
    "x + 1",
    "[torch.neg(y) for y in [x]]",
    "torch.neg(x) if x else x",
    "await_(x)",
    "lambda: x",
    "f'{x}'",
    "{**x}",
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.battery
def test_calls_of_other_things_than_operators(call: str, marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(marked)
    path = marked / "program.py"
    for line in (f"t0 = {call}", call):
        path.write_text(source(line))
        with pytest.raises(TraceSyntaxError) as caught:
            load(path)
        assert f"{path}:7: " in str(caught.value) or "range" in call
    assert not (marked / "created").exists()


RUN = "__import__('marked_module')"
MODULES = {
    "a statement": source(top="import os\nos.system('echo')"),
    "a class": source(top="class A:\n    import marked_module\n"),
    "a loop": source(top="while True: pass\n"),
    "a try": source(top="try:\n    import marked_module\nfinally:\n    pass"),
    "a with": source(top="with open('created', 'w'): pass"),
    "an assignment": source(top=f"y = {RUN}"),
    "an annotated assignment": source(top=f"y: {RUN} = 1"),
    "an assignment to a name of PyTorch": source("t0 = torch.neg(x)", top="torch.neg = 1"),
    "an async function": source(top="async def f(): pass"),
    "a deletion": source(top="del torch"),
    "an assertion": source(top=f"assert {RUN}"),
    "another function": source(top="def helper():\n    import marked_module\n"),
    "a decorator": source(top=f"@{RUN}.run").replace("run\n\n\ndef", "run\ndef"),
    "a default": source(inputs=f'x: "f32[3]" = {RUN}'),
    "a keyword default": source(inputs=f'x: "f32[3]", *, y={RUN}'),
    "an annotation": source(inputs=f"x: {RUN}"),
    "an annotation of the result": source().replace("):", f") -> {RUN}:"),
    "an annotation in a string": source(inputs=f'x: "{RUN}"'),
    "an f-string as annotation": source(inputs='x: f"{marked_module}"'),
    "variable arguments": source(inputs='*x: "f32[3]"'),
    "a result that is a call": source(result=f"{RUN}"),
    "a result that is a constructor": source(result="marked_module.Point(x)"),
    "a result that is a lambda": source(result="lambda: x"),
    "an import in the function": source("import marked_module"),
    "a function in the function": source("def f(): pass"),
    "a global": source("global torch"),
    "an assertion in the function": source(f"assert {RUN}"),
    "a raise": source(f"raise {RUN}"),
    "a walrus": source("(torch := x)"),
    "an augmented assignment": source("x += 1"),
    "an assignment to an attribute": source("torch.neg = torch.neg(x)"),
    "an assignment to an item": source("x[0] = torch.neg(x)"),
    "a context": source(f"with {RUN}: pass"),
    "a context of PyTorch": source("with torch.device('meta'):\n        t0 = torch.neg(x)"),
    "a context with a name": source("with torch.no_grad() as torch:\n        t0 = torch.neg(x)"),
    "a mode as text": source('with torch.set_grad_enabled("__import__(1)"):\n        t0 = torch.neg(x)'),
    "autocast as text": source("with torch.autocast(\"cpu'), __import__(1)\"):\n        t0 = torch.neg(x)"),
    "autocast with a dtype": source("with torch.autocast('cpu', dtype='a'):\n        t0 = torch.neg(x)"),
    "kernels as text": source("with torch.nn.attention.sdpa_kernel(['MATH']):\n        t0 = torch.neg(x)"),
    "a name with code": source().replace("# trace: computation", "# trace: f(): import marked_module #"),
    "a keyword as name": source().replace("computation", "class"),
    "a header with modes": source(header="# context: grad=True inference=False autocast=x;y:float32 cache=True\n"),
    "a header with a module": source(header="# context: grad=True inference=False autocast=cpu:os cache=True\n"),
    "a header that is empty": source(header="# context: \n"),
    "a stage": source(header="# stage: os.system\n"),
    "storages": source(header="# storages: 0-99999999999999\n"),
    "a type with quotes": source(inputs="x: 'object a\" = __import__(\"marked_module\") #'"),
    "a type with a line": source(inputs=r"x: 'object a\n'"),
    "a huge size": source(inputs=f'x: "f32[{"9" * 5000}]"'),
    "a size beyond 64 bits": source(inputs='x: "f32[99999999999999999999]"'),
    "a huge integer": source(f"t0 = torch.add(x, {'9' * 5000})"),
    "deep parentheses": source("t0 = torch.add(x, " + "(" * 10_000 + "1" + ")" * 10_000 + ")"),
    "deep lists": source("t0 = torch.add(x, " + "[" * 150 + "]" * 150 + ")"),
    "deep signs": source("t0 = torch.add(x, " + "-" * 100_000 + "1)"),
    "deep attributes": source("t0 = torch" + ".a" * 100_000 + "(x)"),
    "deep calls": source("t0 = " + "torch.neg(" * 150 + "x" + ")" * 150),
    "deep indices": source("t0 = x" + "[0]" * 50_000),
    "a long sum": source("t0 = torch.add(x, " + "1+" * 100_000 + "1j)"),
    "deep contexts": source("with torch.no_grad(): t0 = torch.neg(x)").replace("with", "with torch.no_grad()," * 3000),
    "constants that are code": source(top=f"CONSTANTS = {RUN}"),
    "a constant that is code": source(top="CONSTANTS = {'x': os.system('echo')}"),
    "a constant by another function": source(top="CONSTANTS = {'x': torch.load('created')}"),
    "a constant with a keyword": source(top="CONSTANTS = {'x': torch.tensor([1.0], dtype=torch.int8, device='meta')}"),
    "a constant with a dtype": source(top="CONSTANTS = {'x': torch.tensor([1.0], dtype=torch.os)}"),
    "a constant with a computation": source(top="CONSTANTS = {'x': torch.tensor([10 ** 10], dtype=torch.float32)}"),
    "a constant of no input": source(top="CONSTANTS = {'y': torch.tensor([1.0], dtype=torch.float32)}"),
    "constants that are unpacked": source(top="CONSTANTS = {**__import__('marked_module')}"),
    "a pickle": source(top=f"CONSTANTS = {{'x': decode('''{base64.b64encode(pickle.dumps(_Runs())).decode()}''')}}"),
    "a file of torch.save": source(top=f"CONSTANTS = {{'x': decode('''{_encoded(_Runs())}''')}}"),
    "a file with a list": source(top=f"CONSTANTS = {{'x': decode('''{_encoded([_Runs()])}''')}}"),
    "text that is not encoded": source(top="CONSTANTS = {'x': decode('''?''')}"),
    "a decoder of the file": source(
        top="def decode(text):\n    import marked_module\n\nCONSTANTS = {'x': decode('''AAAA''')}"
    ),
    "a null character": source() + "\0",
    "other bytes": source().encode() + b"\xff\xfe",
    "UTF-16": source().encode("utf-16"),
    "an encoding that is code": b"# -*- coding: utf-7 -*-\n+AGkAbQBwAG8AcgB0 marked_module\n" + source().encode(),
    "a line of Python 2": source("print 'a'"),
    "an unfinished token": source() + "'''",
    "bad indentation": source() + "        x\n      y\n",
    "nothing": "",
    "a comment": "# trace: computation\n",
    "a function without a body": "def computation(x): return x\n",
    "JSON": '{"a": 1}',
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.slow
def test_modules_that_are_no_traces(name: str, marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(marked)
    content = MODULES[name]
    path = marked / "program.py"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with warnings.catch_warnings(), pytest.raises(TraceSyntaxError, match=str(path)):
        load(path)
    assert not (marked / "created").exists()


# Files that are traces, with code around them that is not run.
HARMLESS = {
    "imports": source("t0 = torch.neg(x)", top="import marked_module\nfrom marked_package import run", result="t0"),
    "a self check": source("t0 = torch.neg(x)", result="t0")
    + "\nif __name__ == '__main__':\n    import marked_module\n",
    "a program": source("t0 = torch.neg(x)", result="t0") + "\ndef program():\n    import marked_module\n",
    "a decoder": source("t0 = torch.neg(x)", result="t0") + "\ndef decode(text):\n    import marked_module\n",
    "a documentation": '"""Text."""\n' + source("'text'", "t0 = torch.neg(x)", result="t0"),
    "an operator": source("t0 = torch.ops.aten.neg.default(x)", result="t0"),
    "a method as argument": source(
        "t0, = thunder_core.passes.operations.functional_call(torch.Tensor.neg, (), (x,), {})", result="t0"
    ),
    "an operator as argument": source(
        "t0, = thunder_core.passes.operations.functional_call(torch.ops.aten.neg.default, (), (x,), {})", result="t0"
    ),
    "lines of another system": source("t0 = torch.neg(x)", result="t0").replace("\n", "\r\n"),
    "a report": source("thunder_core.symbols.printing.print_values('text')", "t0 = torch.neg(x)", result="t0"),
    "a switch": source(
        "thunder_core.ir.switches.set_switch('default dtype', torch.float64)", "t0 = torch.neg(x)", result="t0"
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_files_are_parsed_and_not_executed(name: str, marked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = marked / "program.py"
    path.write_bytes(HARMLESS[name].encode())
    program = load(path)
    assert capsys.readouterr().out == ""
    assert torch.get_default_dtype() is torch.float32
    if name not in ("a report", "a switch"):
        assert torch.equal(program(torch.ones(3)), -torch.ones(3))
        again = print_trace(program.trace)
        path.write_text(again)
        assert load(path).trace == program.trace


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    with pytest.raises(TraceSyntaxError, match="not a regular file"):
        load_trace("/dev/zero" if kind == "a device" else path)
    with pytest.raises(FileNotFoundError):
        load_trace(tmp_path / "absent.py")


@recorded
def doubled(x: torch.Tensor) -> torch.Tensor:
    """A function of the user's."""
    return x * 2


def test_functions_of_the_user_are_given(tmp_path: Path) -> None:
    compiled = thunder.jit(lambda x: doubled(x) + 1)
    expected = compiled(torch.ones(3))
    path = tmp_path / "program.py"
    thunder.save_trace(compiled, path)
    name = f"{__name__}.doubled"
    assert name in path.read_text()
    with pytest.raises(TraceSyntaxError, match=f"there is no function {name} that a trace may call"):
        thunder.load_trace(path)
    program: Any = thunder.load_trace(path, functions={name: doubled})
    assert torch.equal(program(torch.ones(3))[0], expected)
    assert [line.symbol.name for line in program.trace.symbols] == [name, "torch.add"]


def test_constants_that_cannot_be_read_back_without_code_are_not_stored(tmp_path: Path) -> None:
    """An object remains an input; another constant is refused."""
    x, y = build.tensor("x", (3,), 0), build.tensor("y", (3,), 1)
    trace = build.trace((x, OpaqueProxy("other", "Runs")), [build.bound(build.RELU, (x,), y)], y)
    save_trace(trace, tmp_path / "program.py", {"other": _Runs()})
    assert [proxy.name for proxy in load_trace(tmp_path / "program.py").inputs] == ["x", "other"]
    with pytest.raises(TraceError, match="'x', a _Runs, cannot be saved"):
        save_trace(trace, tmp_path / "program.py", {"x": _Runs()})


@pytest.mark.parametrize("name", ["f(): import marked_module #", "class", "1st", "two words"])
def test_a_body_whose_name_no_function_can_have(name: str, marked: Path) -> None:
    path = marked / "program.py"
    path.write_text(source() + f'\n\n# trace: {name}\ndef other(x: "f32[3]"):\n    return x\n')
    with pytest.raises(TraceSyntaxError, match="is not the name of a function"):
        load(path)
