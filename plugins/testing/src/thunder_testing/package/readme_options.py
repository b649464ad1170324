"""The tables of options in a README: between two marks each, and made from the models."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from thunder_core.plugins.nearest import suggestion
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.package.options_table import option_rows, options_table
from thunder_testing.package.project import Project

UPDATE: Final = "UPDATE_DOCUMENTS"
"""The environment variable that has the tables written anew."""

_START: Final = "<!-- options {} -->"
_END: Final = "<!-- end of options -->"
_TABLE: Final = re.compile(
    r"(?P<start><!-- options (?P<names>[^>\n]*) -->\n)(?:(?!<!--).)*(?P<end><!-- end of options -->)", re.DOTALL
)
_LONGEST: Final = 12
"""Lines of a difference that are shown."""


def check_options(project: Project, models: Mapping[str, Any]) -> None:
    """The README has the options of each model; those of executors and transforms come by their names.

    A table for several has what they have in common, and one for a single one the rest of its own.
    """
    rows = {name: option_rows(model) for name, model in models.items()}
    rows = {name: own for name, own in rows.items() if own}
    if not rows:
        raise NotApplicable("the plugins of this project have no options of their own")
    if project.readme is None:
        raise Breach(
            "options", f"{project.folder} has no README in Markdown, to tell of the options of {', '.join(rows)}"
        )
    text = project.readme.read_text(encoding="utf-8")
    tables = _tables([tuple(found["names"].split()) for found in _TABLE.finditer(text)], rows)
    expected = _TABLE.sub(
        lambda found: f"{found['start']}\n{options_table(tables[tuple(found['names'].split())])}\n\n{found['end']}",
        text,
    )
    if text == expected:
        return
    if os.environ.get(UPDATE):
        project.readme.write_text(expected, encoding="utf-8")
    else:
        changes = difflib.unified_diff(
            text.splitlines(), expected.splitlines(), "README.md", "options", n=0, lineterm=""
        )
        shown = "".join(f"\n    {line}" for line in list(changes)[:_LONGEST])
        raise Breach(
            "options",
            f"the tables are not those of the models: run {UPDATE}=1 pytest {project.asked} -k readme-options, and "
            f"look at the difference{shown}",
        )


def _tables(
    marks: Sequence[tuple[str, ...]], rows: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, ...], list[str]]:
    """The rows below each mark. Raises Breach for a mark that is of no use, and for options that are in no table."""
    for name in (name for names in marks for name in names):
        if name not in rows:
            mark = _START.format(name)
            raise Breach("options", f"{mark}: nothing called so has options of its own{suggestion(name, rows)}")
    left = {name: dict(own) for name, own in rows.items()}
    tables = {}
    for names in sorted(marks, key=len, reverse=True):  # what several have in common is not said again of each
        first = left[names[0]] if names else {}
        common = {option: row for option, row in first.items() if all(left[name].get(option) == row for name in names)}
        if not common:
            raise Breach("options", f"{_START.format(' '.join(names))}: there are none for a table here")
        for name in names:
            left[name] = {option: row for option, row in left[name].items() if option not in common}
        tables[names] = list(common.values())
    for name, missing in left.items():
        if missing:
            raise Breach(
                "options",
                f"no table has {', '.join(missing)} of {name}; write these two lines where it shall be, then run the "
                f"test with {UPDATE}=1\n    {_START.format(name)}\n    {_END}",
            )
    return tables
