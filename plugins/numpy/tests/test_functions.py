"""The tables of functions, compared with NumPy."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy_comparison import array, assert_same, tolerance_of

import thunder
from thunder_core.errors import UnsupportedError
from thunder_plugin_numpy.functions import LAYER
from thunder_plugin_numpy.own_functions import FUNCTIONS
from thunder_plugin_numpy.ufuncs import UFUNCS

pytestmark = pytest.mark.filterwarnings("ignore:.*:RuntimeWarning", "ignore:.*:numpy.exceptions.ComplexWarning")

DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")

EVERY = """
sum(x) sum(x,axis=1,keepdims=True) sum(x,axis=(0,1)) sum(x,0,np.float64) mean(x) mean(x,axis=0) std(x,ddof=1)
std(x,axis=0) var(x) var(x,axis=1) prod(x) prod(x,axis=0) prod(x,axis=(0,1)) all(x) all(x,axis=0)
all(x,axis=(0,1),keepdims=True) any(x,axis=1) count_nonzero(x) count_nonzero(x,axis=0) cumsum(x) cumsum(x,axis=1)
cumprod(x,axis=0) average(x) average(x,axis=0) where(x!=0,x,0) where(x!=0,x,np.float64(1)) where(x) around(x)
nan_to_num(x) isclose(x,x) allclose(x,x) array_equal(x,x) array_equiv(x,x) concatenate([x,x[::-1]])
concatenate([x,x.astype(np.float64)],axis=1) concatenate((x,x),axis=None) stack([x,x],axis=-1) vstack([x,x])
hstack([x,x]) dstack([x,x]) column_stack([x,x]) append(x,x) outer(x[0],x[1]) inner(x,x) dot(x,x.T) vdot(x[0],x[1])
trace(x) reshape(x,(4,3)) reshape(x,-1) transpose(x) swapaxes(x,0,1) moveaxis(x,0,1) squeeze(x[None]) expand_dims(x,1)
ravel(x) broadcast_to(x,(2,3,4)) broadcast_arrays(x,x[0]) flip(x) flip(x,0) fliplr(x) flipud(x) roll(x,1)
roll(x,1,axis=0) rot90(x) tile(x,2) tile(x,(2,1)) repeat(x,2) repeat(x,2,axis=1) split(x,3) array_split(x,2,axis=1)
hsplit(x,2) vsplit(x,3) dsplit(x[:,:,None],1) diagonal(x) diag(x[0]) diag(x) diagflat(x[0]) tril(x) triu(x,1)
take(x,[0,2],axis=1) take(x,1) take_along_axis(x,np.array([[0],[1],[2]]),axis=1) atleast_1d(x.sum()) atleast_2d(x[0])
atleast_3d(x) copy(x) nonzero(x) flatnonzero(x) argwhere(x) meshgrid(x[0],x[1]) real(x) imag(x) angle(x) isreal(x)
iscomplex(x) iscomplexobj(x) isrealobj(x) kron(x,x) shape(x) ndim(x) size(x) size(x,1) zeros_like(x) ones_like(x)
full_like(x,1) full_like(x,2,dtype=np.float32) result_type(x,np.float32) can_cast(x.dtype,np.float64) cov(x)
corrcoef(x) pad(x,1) pad(x,((0,1),(2,0)),constant_values=1) select([x!=0,x==1],[x,x],5) matrix_transpose(x)
polyval([1.,2.,3.],x) add.reduce(x) multiply.reduce(x,axis=1) add.accumulate(x) multiply.outer(x[0],x[1]) nansum(x)
nanprod(x,axis=0) trapezoid(x) trapezoid(x,dx=2.,axis=0) fft.fft(x) fft.fft(x,n=6,axis=0) fft.ifft(x) fft.fft2(x)
fft.ifft2(x) fft.fftn(x) fft.ifftn(x) fft.fftshift(x) fft.ifftshift(x) fft.irfft(x) nanmean(x,axis=0)
"""
REAL = """
max(x) max(x,axis=0) min(x,axis=-1,keepdims=True) amax(x) amin(x,axis=1) argmax(x) argmax(x,axis=0) argmin(x,axis=1)
ptp(x+1) clip(x+1,0,1) clip(x+1,None,np.float64(1)) sort(x) sort(x,axis=0) argsort(np.arange(4)*x[0,0]+1)
searchsorted(np.sort(x[0]),x[1]) unique(x) median(x) median(x,axis=0) percentile(x+1,30)
percentile(x+1,[10,90],axis=0) quantile(x+1,0.3,axis=1) interp(x[0],np.array([-1.,0,1]),np.array([1.,2,5]))
isin(x,[1,2]) digitize(x,[-1.,0.,1.]) nanmax(x) nanmin(x,axis=1) nanstd(x) nanvar(x,axis=0) fft.rfft(x)
max(x,initial=2,where=x>0) sum(x,where=x>0) sum(x,axis=0,initial=3) maximum.reduce(x) logical_and.reduce(x)
bincount(np.abs(x[0]+1).astype(int))
"""
NUMBERS = """
diff(x) diff(x,axis=0) round(x,1) tensordot(x,x.T,1) einsum('ij,kj->ik',x,x) cross(x[:,:3],x[:,1:])
convolve(x[0],x[1]) correlate(x[0],x[1]) gradient(x[0])
"""
LINEAR = """
inv(x) det(x) norm(x) norm(x,axis=0) norm(x,1) norm(x[0]) norm(x,'fro') solve(x,x[0]) matrix_power(x,3) slogdet(x)
pinv(x) cond(x) matrix_rank(x) multi_dot([x,x,x]) eigvalsh(x+x.conj().T)
cholesky(x@x.conj().T+np.eye(3,dtype=x.dtype)*9) svd(x)[1] svd(x,compute_uv=False) eigh(x+x.conj().T).eigenvalues
qr(x).R.shape
"""
ITEMS = """
x[0] x[0,1] x[-1] x[:,1] x[::-1] x[:,::-2] x[[0,2]] x[[0,2],[1,1]] x[x!=0] x[...,0] x[None] x[1:3,::2]
x[np.array([True,False,True])] x[:,[3,0]] x[0,[1,2]] x[[0,1],:,None] x[np.newaxis,...,0] x[np.int64(1)] x[2:0:-1]
x[10:] x[...] x[()] x[0,1][()] x[(x!=0).argmax()%3] x.T x.mT x.T[1] x.reshape(2,6) x.reshape((6,-1)) x.flatten()
x.ravel() x.astype(np.float16) x.astype('int8') x.astype(bool) x.astype(complex) x.T.copy() x.dot(x.T) x@x.T x.size
x.nbytes x.itemsize x.strides x.dtype len(x) x.ndim x.shape x+1 x*2.5 x/2 x+x x==x x!=0 x+np.float64(1)
x+np.float32(1) x*True abs(x) x.item(3) float(x[0,0].real) x.swapaxes(0,1) x.squeeze() x.repeat(2) x.conj() x.real
x.imag x.diagonal() x.trace() x.nonzero() x.take([1,2]) x.mean() x.sum(axis=0) x.cumsum(axis=1) x.std() x.var(0)
x.all() x.any(axis=1) x.prod() x.tolist() [r.sum()for(r)in(x)] sum(x) list(x.flat) isinstance(x,np.ndarray)
isinstance(x.sum(),np.generic) x.dtype==np.float32 bool(x[0,0]==x[0,0]) (1)in(x) np.array([x[0],x[1]])
np.array([x.sum(),x.sum()]) np.asarray(x).shape np.zeros(3)+x.sum() np.arange(4)*x np.linspace(0,1,4)*x np.eye(3)@x
np.full((2,2),3)*x[0,0] np.ones((2,2),x.dtype) np.full(3,x[0,0]) np.identity(3)@x np.empty(0,x.dtype)
np.asanyarray(x)[0] np.ascontiguousarray(x.T)
"""
OF_NUMBERS = """
-x +x x.round(1) 1-x x//2 x%3 divmod(x,2) x**2 x.max() x.min(axis=0) x.argmax() x.argsort()[0] x.clip(0,1) x>0 x<=1
x[x>0] np.maximum(x,0) np.multiply(x,x,where=x>0,out=np.zeros_like(x))
"""
OPTIONS = """
std(x,axis=(0,1)) max(x,(0,)) argmax(x,axis=-1,keepdims=True) average(x,axis=1,weights=x[0]) sort(x,axis=None)
unique(np.round(x),return_counts=True) unique(x[0],return_inverse=True) clip(x,a_min=-1,a_max=None)
diff(x,axis=0,prepend=0) gradient(x,axis=0) median(x,axis=0,keepdims=True) quantile(x,[0.1,0.9])
searchsorted(np.sort(x[0]),x[1],side='right') tensordot(x,x,axes=((0,1),(0,1))) einsum('ij,ij->i',x,x) outer(x,x[0])
squeeze(x[None,:,None],axis=(0,2)) moveaxis(x[None],[0,1],[1,0]) roll(x,(1,2),axis=(0,1)) rot90(x,2) split(x,[1,2])
take(x,[[0,1],[2,3]]) cov(x,rowvar=False) cov(x,ddof=0) convolve(x[0],[1,2],'valid') meshgrid(x[0],x[1],indexing='ij')
interp(0.5,np.arange(4.),x[0],left=-1) nan_to_num(x/0,nan=1.0) repeat(x,[1,2,0],axis=0) expand_dims(x,(0,2))
divide(x,2,dtype='f8',casting='same_kind') add.reduce(x,axis=(0,1))
"""
INTEGERS = "x&1 x|x x^x ~x x<<1 x>>1"


NEGATIVE = ("::-", "flip", "rot90", "2:0:-1")
"""In expressions for arrays with negative strides, which are copies here."""


READING = (
    "nonzero",
    "unique",
    "where(x)",
    "argwhere",
    "x[x",
    "float(",
    "bool(",
    "list",
    "in(x)",
    "item(",
    "%3",
    "digitize",
)
"""In expressions that read values of arrays, or have results of sizes that depend on them."""


def compiled(expressions: list[str]) -> list[Callable[[Any, Any], Any]]:
    """Functions of ``x`` and ``y`` with source lines, as functions in files have."""
    source = "".join(["functions = [\n", *[f"lambda x, y: {text},\n" for text in expressions], "]\n"])
    name = f"<expressions {hash(source)}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    namespace: dict[str, Any] = {"np": np}
    exec(compile(source, name, "exec"), namespace)
    return namespace["functions"]


def values_of(expressions: list[str], x: np.ndarray, y: np.ndarray, **options: Any) -> None:
    """Compare the values of expressions, in two compiled programs, with those of NumPy.

    The second program has those that read values, for which programs are recorded several times.
    """
    reading = [text for text in expressions if any(word in text for word in READING)]
    for group in ([text for text in expressions if text not in reading], reading):
        if group:
            compare(group, x, y, **options)


def compare(expressions: list[str], x: np.ndarray, y: np.ndarray, **options: Any) -> None:
    """Compare the values of expressions, in one compiled program, with those of NumPy."""
    functions = compiled(expressions)

    def program(x: Any, y: Any) -> Any:
        return [function(x, y) for function in functions]

    results = thunder.jit(program, executors=[], transforms=[], front_end="numpy", **options)(x, y)
    for text, result, expected in zip(expressions, results, program(x, y), strict=True):
        assert_same(result, expected, tolerance_of(x.dtype.name), f"{text}, {x.dtype}")
        if isinstance(expected, np.ndarray) and not any(word in text for word in NEGATIVE):
            assert np.shares_memory(result, x) == np.shares_memory(expected, x), text


def is_of(name: str, kind: str) -> bool:
    """Whether NumPy and this package have a universal function for numbers of a kind."""
    ufunc = getattr(np, name)
    if kind == "c" and (name in ("maximum", "minimum", "fmax", "fmin") or "less" in name or "greater" in name):
        return False
    if kind == "i" and name == "power":  # an error for the negative exponents
        return False
    try:
        loop = ufunc.resolve_dtypes(
            (
                *[np.dtype({"b": "?", "i": "i8", "u": "u1", "f": "f4", "c": "c8"}[kind])] * ufunc.nin,
                *[None] * ufunc.nout,
            )
        )
    except TypeError:
        return False
    return not (name == "nextafter" and loop[0] == np.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.slow
def test_universal_functions(dtype: str) -> None:
    kind = np.dtype(dtype).kind
    names = [
        name for name in UFUNCS if is_of(name, kind) and not (name == "nextafter" and dtype in ("int8", "float16"))
    ]
    if dtype == "float16":
        names = [name for name in names if name not in ("gcd", "lcm")]
    expressions = [
        f"np.{name}(x)" if getattr(np, name).nin == 1 else f"np.{name}(x, {'y.T' if name == 'matmul' else 'y'})"
        for name in names
    ]
    values_of(expressions, array(dtype), array(dtype, seed=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.slow
def test_special_values(dtype: str) -> None:
    special = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 0.5, 1.5, np.inf, -np.inf, np.nan, 7], dtype)
    x, y = (np.ascontiguousarray(each) for each in np.meshgrid(special, special))
    names = [name for name in UFUNCS if is_of(name, "f") and name != "matmul"]
    values_of([f"np.{name}({'x' if getattr(np, name).nin == 1 else 'x, y'})" for name in names], x, y)


def test_integers_divided_by_zero_are_zero() -> None:
    x, y = (np.ascontiguousarray(each) for each in np.meshgrid(np.arange(-3, 4), np.arange(-3, 4)))
    values_of(["x // y", "x % y", "np.fmod(x, y)", "np.divmod(x, y)", "x / y", "x // 0", "x ** np.abs(y)"], x, y)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "complex64"])
@pytest.mark.battery
def test_functions(dtype: str) -> None:
    kind = np.dtype(dtype).kind
    functions = [EVERY, *([REAL] if kind in "if" else []), *([NUMBERS] if kind != "b" else [])]
    methods = [*([ITEMS, OF_NUMBERS] if kind in "if" else []), *([INTEGERS] if kind == "i" else [])]
    expressions = [f"np.{text}" for group in functions for text in group.split()]
    if kind == "f":
        expressions += [f"np.{text}" for text in OPTIONS.split()]
    values_of(expressions + [text for group in methods for text in group.split()], array(dtype), array(dtype))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_linear_algebra(dtype: str) -> None:
    x = (array(dtype, (3, 3)) + np.eye(3) * 4).astype(dtype)
    values_of([f"np.linalg.{text}" for text in LINEAR.split()], x, x)


def test_each_function_of_the_tables_is_compared() -> None:
    texts = [f"np.{text}" for text in (EVERY + REAL + NUMBERS).split()] + [
        f"np.linalg.{text}" for text in LINEAR.split()
    ]
    compared = {re.match(r"np\.((?:linalg\.|fft\.)?\w+)", text)[1] for text in texts}  # type: ignore[index]
    writing = {"copyto", "putmask", "fill_diagonal", "empty_like"}  # in test_programs
    assert (LAYER | FUNCTIONS.keys()) - compared - writing == set()


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: np.lexsort((x[0], x[1])), "numpy.lexsort"),
        (lambda x: np.frexp(x), "numpy.frexp"),
        (lambda x: np.add.reduceat(x, [0, 1]), "numpy.add.reduceat"),
        (lambda x: x.view(np.int32), "numpy.ndarray.view"),
        (lambda x: x.tobytes(), "numpy.ndarray.tobytes"),
        (lambda x: np.sum(x, dtype=np.uint64), "uint64"),
        (lambda x: x.astype(str), "<U"),
        (lambda x: np.sort(x + 1j), "numpy.sort of complex numbers"),
        (lambda x: np.pad(x, 1, mode="edge"), "numpy.pad"),
        (lambda x: np.sin(x, where=x > 0), "where="),
        (lambda x: np.ravel(x, order="F"), "order='F'"),
        (lambda x: memoryview(x), "a bytes-like object is required"),
    ],
)
def test_what_is_not_covered_is_named(function: Any, named: str) -> None:
    with pytest.raises((UnsupportedError, TypeError), match=re.escape(named)) as raised:
        thunder.jit(function, executors=[], front_end="numpy")(array("float32"))
    if isinstance(raised.value, UnsupportedError):
        assert "test_functions.py" in str(raised.value)
        assert raised.value.advice
