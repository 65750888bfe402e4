"""`toposcale benchmark`: how well laws forecast the published runs, ours and yours."""

import argparse
import os
import sys
from collections.abc import Callable
from datetime import date
from importlib import import_module
from typing import Any

from toposcale.datasets.benchmark import Benchmark, Setting, cache_folder, constants_digest, judge_all, long_table
from toposcale.datasets.contestants import CHEAP, CONTESTANTS
from toposcale.datasets.published_runs import load_published_runs
from toposcale.forecasting import results
from toposcale.forecasting.decision.decision_points import SHARES
from toposcale.forecasting.evaluation import Known
from toposcale.forecasting.laws.law import Estimator
from toposcale.io.errors import UserError

SEEN = "seen"
"""Tag of the runs that were in view when the joint law was made: docs/decisions.md is about them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    text = "a law of yours, a class with fit and predict, such as my_module:MyLaw; may be given again"
    parser.add_argument("--law", action="append", default=[], metavar="MODULE:CLASS", help=text)
    text = "judge on this source only; may be given again"
    parser.add_argument("--sources", action="append", metavar="SOURCE", help=text)
    text = "share of the steps that is seen, by default 0.2, 0.3 and 0.5; may be given again"
    parser.add_argument("--at", action="append", metavar="SHARE", help=text)
    text = "judge on runs with this tag, by default seen; may be given again"
    parser.add_argument("--tags", action="append", metavar="TAG", help=text)
    text = "with one smaller run of the family known, instead of none"
    parser.add_argument("--smaller", action="store_true", help=text)
    parser.add_argument("--csv", metavar="FILE", help="also write every row by law, source and share")
    results.add_form_options(parser, plot="draw the error by the share that is seen", csv=False)
    parser.add_argument("--processes", metavar="N", help="processes, by default one for each core")
    parser.add_argument("--no-cache", action="store_true", help="judge again what earlier calls have judged")


def run(options: argparse.Namespace) -> None:
    """Judge and print the tables."""
    theirs = {name: law_of(name) for name in options.law}
    known = Known.ONE_SMALLER if options.smaller else Known.ALONE
    at = tuple(share_of(text) for text in options.at or map(str, SHARES))
    setting = Setting(load_published_runs(options.sources, options.tags or [SEEN]), at, known)
    only_cached = [name for name in CONTESTANTS if name not in CHEAP] if theirs else []
    judged = _with_progress(
        lambda progress: judge_all(
            {**CONTESTANTS, **theirs},
            setting,
            processes=_processes(options.processes),
            cache=None if options.no_cache else cache_folder(),
            only_cached=only_cached,
            progress=progress,
        ),
        quiet=options.quiet,
    )
    shares = ", ".join(f"{share:.0%}" for share in at)
    heading = f"{len(setting.runs)} runs of {len(setting.runs.sources)} sources, forecast from {shares}; {known.value}"
    heading += f"\nconstants of the joint law: {constants_digest()}"
    if unseen := sorted({run.source for run in setting.runs if run.split != SEEN}):
        heading += f"\nunseen sources, on {date.today()}: {', '.join(unseen)}"
    benchmark = Benchmark(judged)
    results.show(benchmark, options, f"{heading}\n{benchmark}")
    if absent := [name for name in only_cached if name not in judged]:
        text = f"\nnot judged yet: {', '.join(absent)}; toposcale benchmark judges them, in some minutes"
        print(text, file=sys.stderr if options.json is True or options.latex else sys.stdout)
    if options.csv:
        long_table(judged).to_csv(options.csv, index=False)


def law_of(name: str) -> Callable[[], Estimator]:
    """Return a class by its name MODULE:CLASS; UserError: there is none, or it is no law."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UserError(f"--law: {name}, but a law is named as MODULE:CLASS, such as my_module:MyLaw")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)  # a module in the folder of the user, as with python -m
    try:
        law: Any = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--law: {name}: {error}") from error
    for method in ("fit", "predict"):
        if not callable(getattr(law, method, None)):
            raise UserError(f"--law: {name} has no {method}; a law has fit(run, others) and predict(targets)")
    return law


def share_of(text: str) -> float:
    """Return a share of a run; UserError: it is none."""
    try:
        share = float(text)
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise UserError(f"--at: {text}, but it is a share of the steps between 0 and 1, such as 0.3")
    return share


def _processes(text: str | None) -> int:
    """Return the number of processes; UserError: it is not a whole number above 0."""
    if text is None:
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"--processes: {text}, but it is a whole number from 1 on")
    return int(text)


def _with_progress(call: Callable[[Callable[[str, int, int], None]], Any], *, quiet: bool) -> Any:
    """Call a function with one that draws a progress bar for each law."""
    from rich.console import Console
    from rich.progress import Progress

    console, bars = Console(stderr=True), {}
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:

        def progress(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = bar.add_task(name, total=total)
            bar.update(bars[name], completed=done)

        return call(progress)
