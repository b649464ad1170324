"""Fourier transforms."""

from thunder_core.symbols.row import Row, row, rows

_ONE = "input, n=None, dim=-1, norm=None"
_TWO = "input, s=None, dim=(-2, -1), norm=None"
_MANY = "input, s=None, dim=None, norm=None"

ROWS: list[Row] = [
    *[row(f"torch.fft.{name}({_ONE})", method=False) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")],
    *[row(f"torch.fft.{name}2({_TWO})", method=False) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")],
    *[row(f"torch.fft.{name}n({_MANY})", method=False) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")],
    *rows(
        """
        torch.fft.fftshift(input, dim=None)
        torch.fft.ifftshift(input, dim=None)
        torch.stft(...)
        torch.istft(...)
        """,
        method=False,
    ),
]
