"""The outcomes of tests, kept in a file between runs."""

from __future__ import annotations

import collections
import json
import pathlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tests.pytorch_programs.outcome import Outcome
from tests.pytorch_programs.runs import NotImportedError, Runner


@dataclass
class Results:
    """Outcomes by file and test, eager and with Thunder.

    Attributes:
        path: the JSON file where they are kept; None: nowhere.
        eager, thunder: by the file and the test's name.
        not_imported: the reason, by the file.
    """

    path: pathlib.Path | None = None
    eager: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    thunder: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    not_imported: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(path: pathlib.Path | None) -> Results:
        """What is kept at ``path``; a file that is not there has nothing."""
        if path is None or not path.exists():
            return Results(path)
        kept = json.loads(path.read_text())

        def outcomes(compiler: str) -> dict[str, dict[str, Outcome]]:
            return {
                file: {name: Outcome(**each) for name, each in of_file.items()}
                for file, of_file in kept[compiler].items()
            }

        return Results(path, outcomes("eager"), outcomes("thunder"), kept["not_imported"])

    def write(self) -> None:
        """Keep them."""
        if self.path is not None:
            kept = {"not_imported": self.not_imported}
            for compiler in ("eager", "thunder"):
                kept[compiler] = {
                    file: {name: each.as_dict() for name, each in of_file.items()}
                    for file, of_file in getattr(self, compiler).items()
                }
            self.path.write_text(json.dumps(kept, indent=1))

    def programs(self, file: str) -> list[str]:
        """The tests that eager passes and that compile something."""
        outcomes = self.eager.get(file, {})
        return [name for name, outcome in outcomes.items() if outcome.kind == "passed" and outcome.compiled]

    def run(self, runner: Runner, file: str, match: str, again: Collection[str]) -> Iterator[tuple[str, Outcome]]:
        """Run the tests of ``file`` that have no outcome, or an outcome of a kind in ``again``, and keep the results.

        ``match``: a part of the names of the tests with Thunder. Gives what ran with Thunder.
        """
        try:
            if file not in self.eager:
                self.eager[file] = dict(runner.outcomes(file, "eager"))
                self.write()
            known = self.thunder.setdefault(file, {})
            names = [
                name
                for name in self.programs(file)
                if match in name and (name not in known or known[name].kind in again or "all" in again)
            ]
            for name, outcome in runner.outcomes(file, "thunder", names):
                known[name] = outcome
                self.write()
                yield name, outcome
        except NotImportedError as error:
            self.not_imported[file] = str(error)
            self.write()

    def counts(self, files: Collection[str]) -> collections.Counter[str]:
        """How many programs of ``files`` have each kind of outcome."""
        return collections.Counter(outcome.kind for file in files for outcome in self.thunder.get(file, {}).values())
