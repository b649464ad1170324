"""Elementwise functions of one tensor."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.ELEMENTWISE,)

ROWS: list[Row] = [
    row("torch.round(input)", "special.round", overloads=("input, *, decimals",), tags=_TAGS),
    *rows(
        """
        torch.abs(input) | torch.absolute | Tensor.__abs__
        torch.acos(input) | torch.arccos
        torch.acosh(input) | torch.arccosh
        torch.angle(input)
        torch.asin(input) | torch.arcsin
        torch.asinh(input) | torch.arcsinh
        torch.atan(input) | torch.arctan
        torch.atanh(input) | torch.arctanh
        torch.bitwise_not(input) | Tensor.__invert__
        torch.ceil(input)
        torch.conj_physical(input)
        torch.cos(input)
        torch.cosh(input)
        torch.deg2rad(input)
        torch.digamma(input) | special.digamma | special.psi
        torch.erf(input) | special.erf
        torch.erfc(input) | special.erfc
        torch.erfinv(input) | special.erfinv
        torch.exp(input)
        torch.exp2(input) | special.exp2
        torch.expm1(input) | special.expm1
        torch.floor(input)
        torch.frac(input)
        torch.i0(input) | special.i0
        torch.isfinite(input)
        torch.isinf(input)
        torch.isnan(input)
        torch.isneginf(input)
        torch.isposinf(input)
        torch.isreal(input)
        torch.lgamma(input) | special.gammaln
        torch.log(input)
        torch.log10(input)
        torch.log1p(input) | special.log1p
        torch.log2(input)
        torch.logical_not(input)
        torch.logit(input, eps=None) | special.logit
        torch.nan_to_num(input, nan=None, posinf=None, neginf=None)
        torch.neg(input) | torch.negative | Tensor.__neg__
        torch.positive(input) | Tensor.__pos__
        torch.rad2deg(input)
        torch.reciprocal(input)
        torch.rsqrt(input)
        torch.sgn(input)
        torch.sigmoid(input) | special.expit | F.sigmoid
        torch.sign(input)
        torch.signbit(input)
        torch.sin(input)
        torch.sinc(input) | special.sinc
        torch.sinh(input)
        torch.sqrt(input)
        torch.square(input)
        torch.tan(input)
        torch.tanh(input) | F.tanh
        torch.trunc(input) | torch.fix
        """,
        tags=_TAGS,
    ),
    *rows(
        """
        torch.special.airy_ai(x)
        torch.special.bessel_j0(input)
        torch.special.bessel_j1(input)
        torch.special.bessel_y0(input)
        torch.special.bessel_y1(input)
        torch.special.entr(input)
        torch.special.erfcx(input)
        torch.special.i0e(input)
        torch.special.i1(input)
        torch.special.i1e(input)
        torch.special.log_ndtr(input)
        torch.special.modified_bessel_i0(input)
        torch.special.modified_bessel_i1(input)
        torch.special.modified_bessel_k0(input)
        torch.special.modified_bessel_k1(input)
        torch.special.ndtr(input)
        torch.special.ndtri(input)
        torch.special.scaled_modified_bessel_k0(x)
        torch.special.scaled_modified_bessel_k1(x)
        torch.special.spherical_bessel_j0(x)
        """,
        tags=_TAGS,
        method=False,
    ),
]
