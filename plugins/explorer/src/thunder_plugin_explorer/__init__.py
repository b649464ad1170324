"""Views of compiled programs in files: the explorer, a page of HTML.

- `page`: the file, from the data and the files of ``assets/``.
- `report_data`: the report of `thunder.explain` as data for the page.
- `program_data`: the traces of a program as tables of ops.
- `memory`: the storages that are alive at each op.
- `perfetto`: a trace of time, memory and collectives for Perfetto.
- `picture`: a picture of a small program as SVG.
- `difference`, `diff_command`: the differences of two reports or saved programs, ``thunder diff``.
"""
