"""Grammars of text logs: the lines of training programs, the facts that lines state, and what containers put before them.

A new program is one line of `GRAMMARS` and its lines in the tests.
"""

import re
from typing import NamedTuple

from toposcale.forecasting.amounts import number_of
from toposcale.forecasting.logs.names import END, PARAMETERS, PER_STEP

MARK = "\0"
"""Stands in the place of a number in the form of a line."""


class Grammar(NamedTuple):
    """Regular expressions of the whole lines of a training program; {name} is a number of that name, # any number.

    training, evaluation: lines with a training loss, and with a validation loss. heading: lines that state the step of the
    losses below. precedes: whether an evaluation is logged before the step that it belongs to. in_bits: whether the losses
    are logarithms to base 2 if the perplexity is 2^loss. is_launcher: whether the program trains within others, whose lines
    state its losses again. is_whole: whether numbers that have no name here have none.
    """

    training: tuple[str, ...]
    evaluation: tuple[str, ...] = ()
    heading: tuple[str, ...] = ()
    precedes: bool = False
    in_bits: bool = False
    is_launcher: bool = False
    is_whole: bool = False


GRAMMARS = {
    "nanoGPT": Grammar(
        (r"iter {step}: loss {loss}, time .*",), (r"step {step}: train loss {loss}, val loss {validation_loss}",)
    ),
    "build-nanogpt": Grammar(
        (r"step {step} \| loss: {loss} \| lr {learning_rate} \| norm: {gradient_norm} \| .*", "{step} train {loss}"),
        ("validation loss: {validation_loss}", "{step} val {validation_loss}"),
        precedes=True,
    ),
    "llm.c": Grammar(
        (
            r"step {step}/{total} \| loss {loss} \(.*z\).*",
            r"step {step}/{total} \| train loss {loss} .*",
            "s:{step} trl:{loss}.*",
        ),
        ("val loss {validation_loss}", "s:{step} tel:{validation_loss}", "s:{step} eval:#"),
        precedes=True,
    ),
    "modded-nanogpt": Grammar(
        ("step:{step}/{total} train_loss:{loss} .*",), ("step:{step}/{total} val_loss:{validation_loss} .*",)
    ),
    "Megatron-LM": Grammar(
        (r".*iteration {step}/ ?{total} \|.*lm[ _]loss: {lm_loss}.*",),
        (
            r".*validation (?:loss|results) at iteration {step} \|.*?lm[ _]loss value: {validation_lm_loss} .*",
            r".*validation (?:loss|results) at iteration {step} on validation set \|.*?value: {validation_lm_loss} .*",
            r".*validation (?:loss|results) at iteration {step} on test set \|.*?value: {test_lm_loss} .*",
        ),
    ),
    "nanotron": Grammar((r".*iteration: {iteration} / {total} \| consumed_tokens: #.*lm_loss: {lm_loss} .*",)),
    "DeepSpeed": Grammar((r"steps: {steps} loss: {loss} iter time \(s\): # samples/sec: #",), is_launcher=True),
    "torchtitan": Grammar((".*step: {step} loss: {loss} .*",), (".*validate step: {step} loss: {validation_loss}.*",)),
    "torchtune": Grammar((r"step {step} \| loss:{loss} .*",)),
    "NeMo": Grammar(
        (r".*iteration {iteration}/{total} \|.*reduced_train_loss[:=] ?{loss}.*", ".*reduced_train_loss[:=] ?{loss}.*")
    ),
    "Composer": Grammar(
        (
            "Train loss/train/total: {total_loss}",
            "Train (?:loss/train/ce_loss|metrics/train/LanguageCrossEntropy): {ce_loss}",
        ),
        ("Eval metrics/.*/LanguageCrossEntropy: {validation_loss}",),
        (r".*\[batch={step}/{total}\].*",),
    ),
    "OLMo": Grammar(("train/CrossEntropyLoss={crossentropyloss}",), heading=(r".*\[step={step}/{total}.*",)),
    "OLMo-core": Grammar(("train/CE loss={ce_loss}",), heading=(r".*\[step={step}/{total}.*",)),
    "LitGPT": Grammar((r"Epoch {epoch} \| iter {iter} step {step} \| loss train: {loss}, val: {validation_loss}.*",)),
    "InternLM": Grammar((r".*step={step} loss={total_loss} .*loss_from_metric={ce_loss} .*",), is_whole=True),
    "tinygrad": Grammar(
        (
            r"{step} # s run, {loss} loss, {learning_rate} LR, # used, # GFLOPS",
            r"step {step}: {loss} train loss, {validation_loss} val loss",
        ),
        is_whole=True,
    ),
    "fairseq": Grammar((r".*train_inner \| .*num_updates.*",), (r".*valid \| .*num_updates.*",), in_bits=True),
    "transformers": Grammar(
        (r".*\{'loss': {loss}.*'epoch': {epoch}.*\}",), (r".*\{'eval_loss': {validation_loss}.*'epoch': {epoch}.*\}",)
    ),
    "TensorFlow Estimator": Grammar(
        (".*loss = {loss}, step = {step}.*",),
        (r".*Saving dict for global step {global_step}: .*?(?<!\w)loss = {validation_loss}.*",),
    ),
    "MLflow": Grammar(("{milliseconds} {loss} {step}",)),
}
"""Grammars by program, each with the names of the numbers of its lines; the first that fits a line counts."""

_RANK = rf"(?:\[?(?:rank|default)?[ _]?{MARK}(?:\]:?|:) ?)?"


def _compiled(template: str) -> re.Pattern[str]:
    """Return the expression of a template for lines with marks in the place of their numbers."""
    named = re.sub(r"\{([a-z_]+)\}", rf"(?P<\1>{MARK})(?![.,]{MARK})", template.replace("#", MARK))
    return re.compile(_RANK + named, re.IGNORECASE)


class Fit(NamedTuple):
    """A program whose grammar fits a line, and the names of the numbers of the line by position."""

    program: str
    names: dict[int, str]
    is_evaluation: bool = False
    is_heading: bool = False


_LINES = [
    (program, _compiled(template), kind)
    for kind in ("evaluation", "training", "heading")
    for program, grammar in GRAMMARS.items()
    for template in getattr(grammar, kind)
]


def fit_of(key: str) -> Fit | None:
    """Return the first grammar that fits a line with marks in the place of its numbers, those of evaluations first."""
    for program, expression, kind in _LINES:
        if match := expression.fullmatch(key):
            named = {key.count(MARK, 0, match.start(name)): name for name, text in match.groupdict().items() if text}
            names = {at: END if name == "total" else name for at, name in named.items()}
            return Fit(program, names, kind == "evaluation", kind == "heading")
    return None


_AMOUNT = r"(\d+(?:,\d{3})*+(?:\.\d++)? ?[KMBT]?)(?![\w,]|\.\w| \d)"
_FACTS = {
    re.compile(r"(?:.*[|,;:=()\[\]{}<>\"'\t>] ?)?\W*(?:(?:info|root|main|log)\W+)*" + expression, re.IGNORECASE): name
    for name, expression in (
        (PER_STEP, rf"tokens per iteration will be: {_AMOUNT}"),
        (PER_STEP, rf"total desired batch size: {_AMOUNT}"),
        (PARAMETERS, rf"(?:number of parameters|total parameters|total params)\s*[:=] ?{_AMOUNT}"),
        (
            PARAMETERS,
            r"(?:.*[^\w ] ?|.*\b(?:info|the|a|this|our|language|gpt|transformer) )?(?:model|network) (?:has|with|contains) "
            rf"{_AMOUNT} param(?:eter)?s\b",
        ),
    )
}
"""Facts of a run, by the exact form of the line that states each; what is written otherwise is unknown."""

_FACT_WORDS = re.compile("param|tokens per|batch size", re.IGNORECASE)


def fact_of(line: str) -> tuple[str, float] | None:
    """Return name and value of the fact that a line states; None if it states none."""
    if _FACT_WORDS.search(line):
        for expression, name in _FACTS.items():
            if match := expression.match(line):
                return name, number_of(match[1].replace(" ", ""))
    return None


_TIME = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = (
    rf"{_TIME} (?:std(?:out|err) [FP] )?",  # docker logs -t, Kubernetes
    r"\[pod/[^\]\n]*\] ",  # kubectl logs --prefix
    r"[\w.-]+-\d+ +\| ",  # docker compose
    r"\w{3} +\d+ \d\d:\d\d:\d\d \S+ [^\s:\[]+(?:\[\d+\])?: ",  # journald
    r"\((?:\w+ )?pid=\d+(?:, ip=[\d.]+)?\) ",  # Ray
)
"""Prefixes that containers and launchers put before the lines of a program; ranks stay, since they tell rows apart."""

_PREFIX = re.compile(f"^(?:{'|'.join(_PREFIXES)})+".encode(), re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
SAMPLED_BYTES = 1 << 20
"""Start of a log in which prefixes are looked for."""


def plain_content(content: bytes) -> bytes:
    """Return a text log without colours and prefixes, with one kind of newline, and a newline at its end."""
    content = _COLOURS.sub(b"", content) if b"\x1b" in content else content
    content = re.sub(rb"\r++(?=\n)|(?<=\r)\r++", b"", content) if b"\r" in content else content
    content = _PREFIX.sub(b"", content) if _PREFIX.search(content, 0, SAMPLED_BYTES) else content
    return content if content.endswith(b"\n") else content + b"\n"
