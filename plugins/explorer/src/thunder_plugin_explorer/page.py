"""The page: one file of HTML with its style, its code and the data of a report. It reads nothing else.

Texts of programs are data, never markup. They are in a JSON element in which ``<``, ``>`` and ``&`` are escaped, and
the code of the page writes them as text nodes. The page's content security policy forbids all other scripts, styles and
requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from thunder.report.compile_report import CompileReport
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_explorer.report_data import report_data

LARGEST: Final = 15_000_000
"""The size in bytes above which stages of older programs are left out."""
_SCRIPTS: Final = ("dom.js", "model.js", "differences.js", "list.js", "details.js", "views.js", "explorer.js")
_ESCAPES: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def write_page(report: CompileReport, entries: Sequence[CacheEntry], path: str | os.PathLike[str]) -> None:
    """Write the page of a report to a file, which is replaced if it exists.

    Args:
        entries: the compiled programs, in the order of ``report.entries``.

    Raises:
        OSError: the file cannot be written.
    """
    complete = len(entries)
    text = page(report_data(report, entries, complete))
    while len(text.encode()) > LARGEST and complete > 0:
        complete //= 2
        text = page(report_data(report, entries, complete))
    Path(path).write_text(text, encoding="utf-8")


def page(data: dict[str, Any]) -> str:
    """The page with this data."""
    assets = files("thunder_plugin_explorer") / "assets"
    style = (assets / "explorer.css").read_text(encoding="utf-8")
    code = "\n".join([(assets / name).read_text(encoding="utf-8") for name in _SCRIPTS])
    script = f'"use strict";\n(() => {{\n{code}\n}})();\n'
    values = {
        "title": escape(str(data["name"])),
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'",
        "style": style,
        "data": as_json(data),
        "script": script,
    }
    template = (assets / "explorer.html").read_text(encoding="utf-8")
    parts = template.split("{{")
    texts = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        texts += [values[name], rest]
    return "".join(texts)


def as_json(data: Any) -> str:
    """``data`` as JSON that may be the text of an HTML element; objects that JSON lacks by their ``str``."""
    text = json.dumps(data, separators=(",", ":"), default=str)  # ASCII: also U+2028 and lone surrogates are escaped
    return text.translate(_ESCAPES)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
