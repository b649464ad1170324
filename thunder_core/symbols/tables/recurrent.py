"""Recurrent networks and their cells. Overloads for packed sequences have other positions: arguments stay."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

ROWS: list[Row] = [
    *[row(f"torch.{name}(...)", method=False, tags=(Tag.RANDOM,)) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")],
    *rows(
        """
        torch.lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        """,
        method=False,
    ),
]
