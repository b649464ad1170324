"""Run the batteries and write docs/support.md: what compiles and equals eager, what is refused, and why.

python -m tests.support                                  # all of it, and write the page
python -m tests.support --only 'transformers/*' --verbose    # some of it, printed
python -m tests.support --only 'gradients/nn.*'          # gradients of some operators
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests import subjects
from thunder_core.pytorch_versions import tested_versions
from thunder_testing.opinfo import SAMPLES_PER_OPERATOR, operator_names, run_operator
from thunder_testing.opinfo_gradients import differentiable_operator_names, run_backward
from thunder_testing.outcome import Outcome, Status
from thunder_testing.workers import run_in_workers

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
OPERATORS, GRADIENTS, TRAINING = "operators/", "gradients/", "/training"
LIBRARIES = {"LitGPT": "litgpt/", "Hugging Face": "transformers/"}
WORDS = {
    Status.PASSED: "equal to eager",
    Status.ERROR: "refused by a clear error",
    Status.WRONG: "wrong",
    Status.CRASH: "crash",
    Status.TIMEOUT: "timeout",
    Status.SKIPPED: "not passed by eager itself",
}


def run_case(name: str, subject: str, samples: int) -> Outcome:
    """The outcome of one case of any battery, by its name on the page; ``samples`` is for operators."""
    compile = subjects.SUBJECTS[subject]
    if name.startswith(OPERATORS):
        return run_operator(name.removeprefix(OPERATORS), compile, samples=samples)
    if name.startswith(GRADIENTS):
        return run_backward(name.removeprefix(GRADIENTS), compile, samples=samples)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    from tests.models.battery import run_case as run_model

    return run_model(name, compile)


def page(outcomes: dict[str, Outcome]) -> str:
    """The page: counts, then for each battery what did not pass, then the models one by one."""
    import torch

    other = {OPERATORS + name for name in operator_names(None)}
    batteries = {
        "Operators (OpInfo, float32)": [name for name in outcomes if name.startswith(OPERATORS) and name not in other],
        "Operators without float32 (OpInfo, first supported dtype)": [name for name in outcomes if name in other],
        "Gradients of operators (OpInfo, float64)": [name for name in outcomes if name.startswith(GRADIENTS)],
    }
    for library, prefix in LIBRARIES.items():
        models = [name for name in outcomes if name.startswith(prefix)]
        batteries[library] = [name for name in models if TRAINING not in name]
        batteries[f"{library}: training"] = [name for name in models if TRAINING in name]
    lines = [
        "# What compiles",
        "",
        f"Written by `python -m tests.support` with torch {torch.__version__.split('+')[0]} on CPU; do not edit.",
        tested_versions(),
        "Each case runs the compiled program and eager on equal inputs, twice, and compares results, mutated inputs,",
        "aliasing, random state and exceptions. Operators run as function, method, operator, in place and with `out=`,",
        "two samples each; an operator counts by its worst outcome. Gradients are those that random cotangents of all",
        "outputs give to the inputs of an operator, as function and in place, and those that a loss gives to the",
        "parameters of a model in training mode.",
        "",
        "With PyTorch 2.11.0 (Python 3.12, transformers 5.3.0) and 2.15.0 (Python 3.13, the newest transformers) the",
        "continuous integration requires the same of all models and of a fourth of the operators and gradients.",
        "",
        "| battery | cases | " + " | ".join(WORDS.values()) + " |",
        "|---|" + "---|" * (len(WORDS) + 1),
    ]
    for battery, names in batteries.items():
        counts = Counter(outcomes[name].status for name in names)
        lines.append(f"| {battery} | {len(names)} | " + " | ".join(str(counts[status]) for status in WORDS) + " |")
    for battery, names in batteries.items():
        lines += ["", f"## {battery}", ""]
        detailed = [name for name in names if outcomes[name].status is not Status.PASSED]
        if battery.startswith(tuple(LIBRARIES)):
            passed = [name.split("/", 1)[1] for name in names if outcomes[name].status is Status.PASSED]
            lines += ["Equal to eager: " + ", ".join(passed) + ".", ""]
        lines += _table(detailed, outcomes) if detailed else ["Nothing else."]
    return "\n".join(lines) + "\n"


def _table(names: Iterable[str], outcomes: dict[str, Outcome]) -> list[str]:
    lines = ["| case | outcome | why |", "|---|---|---|"]
    for name in names:
        why = outcomes[name].headline.replace("|", "\\|")
        lines.append(f"| `{name.split('/', 1)[1]}` | {WORDS[outcomes[name].status]} | {why} |")
    return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="pattern of case names; anything but '*' writes no page")
    parser.add_argument("--subject", default="reference", choices=subjects.SUBJECTS)
    parser.add_argument("--samples", type=int, default=SAMPLES_PER_OPERATOR, help="samples of each operator")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="print whole messages instead of first lines")
    options = parser.parse_args()

    from tests.models.battery import CASES

    names = [OPERATORS + name for name in operator_names() + operator_names(None)]
    names += [GRADIENTS + name for name in differentiable_operator_names()] + list(CASES)
    chosen = fnmatch.filter(names, options.only)
    runner = functools.partial(run_case, subject=options.subject, samples=options.samples)
    outcomes = run_in_workers(runner, chosen, workers=options.workers)
    for name, outcome in outcomes.items():
        if outcome.status is not Status.PASSED:
            print(f"{name}: {outcome.status.name.lower()}: {outcome.message if options.verbose else outcome.headline}")
    print(
        ", ".join(f"{count} {WORDS[status]}" for status, count in Counter(o.status for o in outcomes.values()).items())
    )
    if options.only == "*":
        PAGE.write_text(page(outcomes))
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
