"""The README's table of options is made from the model; ``UPDATE_DOCUMENTS=1`` rewrites it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from thunder_core.plugins import ExecutorOptions
from thunder_plugin_inductor.options import InductorOptions

README = Path(__file__).parents[1] / "README.md"


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = InductorOptions.model_json_schema()["properties"]
    for name, field in InductorOptions.model_fields.items():
        if name in ExecutorOptions.model_fields:
            continue
        schema = properties[name]
        values = ", ".join(f'`"{value}"`' for value in schema.get("enum", ())) or schema["type"]
        default = field.get_default(call_default_factory=True)
        rows.append(f"| `{name}` | {values} | `{default!r}` | {' '.join(field.description.split())} |")
    return "\n".join(rows)


def test_options_table() -> None:
    text = README.read_text()
    found = re.search(r"<!-- options -->\n\n?(.*?)\n## ", text, re.DOTALL)
    expected = f"{table()}\n"
    if os.environ.get("UPDATE_DOCUMENTS"):
        README.write_text(text.replace(found[0], f"<!-- options -->\n{expected}\n## "))
    else:
        assert found[1].strip() == expected.strip()
