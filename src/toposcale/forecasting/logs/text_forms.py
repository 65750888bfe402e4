"""Forms of the lines of text logs: a line becomes a form when its numbers are replaced by a mark.

The names in front of the marks tell once what the numbers of all its lines are: a step, a loss, a learning rate. A table of
grammars identifies programs by their forms.
"""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from toposcale.forecasting.logs.columns import (
    COUNTERS,
    END,
    OF_THE_BATCH,
    PARAMETERS,
    PER_STEP,
    PERPLEXITY,
    TEST,
    TRAINING,
    VALIDATION,
    LossName,
    loss_name,
    plain_name,
)
from toposcale.forecasting.logs.trainer_states import SUMMARY


class Grammar(NamedTuple):
    """Lines of a training program; # is a number, ... anything.

    training, evaluation: whole lines with a training loss, and with a validation loss. precedes: whether an evaluation is
    logged before the step that it belongs to. in_bits: whether the losses are logarithms to base 2 if the perplexity is
    2^loss.
    """

    training: tuple[str, ...]
    evaluation: tuple[str, ...] = ()
    precedes: bool = False
    in_bits: bool = False


GRAMMARS = {
    "nanoGPT": Grammar(("iter #: loss #, time ...",), ("step #: train loss #, val loss #",)),
    "build-nanogpt": Grammar(
        ("step # | loss: # | lr # | norm: # | ...", "# train #"), ("validation loss: #", "# val #"), precedes=True
    ),
    "llm.c": Grammar(
        ("step #/# | loss # ...", "step #/# | train loss # ...", "s:# trl:# ..."),
        ("val loss #", "s:# tel:#"),
        precedes=True,
    ),
    "modded-nanogpt": Grammar(("step:#/# train_loss:# ...",), ("step:#/# val_loss:# ...",)),
    "Megatron-LM": Grammar(
        ("...iteration #/...# |...lm loss: #...", "...iteration #/...# |...lm_loss: #..."),
        ("...validation loss at iteration # ...", "...validation results at iteration # ..."),
    ),
    "torchtitan": Grammar(("...step: # loss: # ...",), ("...validate step: # loss: #...",)),
    "torchtune": Grammar(("Step # | loss:# ...",)),
    "NeMo": Grammar(("...reduced_train_loss: #...", "...reduced_train_loss=#...")),
    "Composer": Grammar(("Train loss/train/total: #", "Train metrics/train/LanguageCrossEntropy: #")),
    "OLMo": Grammar(("train/CrossEntropyLoss=#",)),
    "LitGPT": Grammar(("Epoch # | iter # step # | loss train: #, val: #...",)),
    "fairseq": Grammar(("...train_inner | ...num_updates...",), ("...valid | ...num_updates...",), in_bits=True),
    "transformers": Grammar(("...{'loss': #...'epoch': #...}",), ("...{'eval_loss': #...'epoch': #...}",)),
    "TensorFlow Estimator": Grammar(("...loss = #, step = #...",), ("...Saving dict for global step #: ...",)),
    "MLflow": Grammar(("# # #",)),
}
"""Grammars by program."""

_CORE = r"[-+]?(?:(?:\d{1,3}(?:,\d{3})++(?![\d,])|\d++)(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
NUMBER = re.compile(
    r"(?=[-+.\dni])(?:(?<![a-z_\d.])|(?<=step)|(?<=step_)|(?<=iter)|(?<=iteration)|(?<=epoch)|(?<=rank))"
    rf"(?:{_CORE}|(?<!of )(?:nan|inf|n/a|none)(?![a-z_]))",
    re.IGNORECASE,
)
MARK = "\0"  # in the place of a number
_OPENING_BAR = re.compile(r"\0%\|[^\[]*+\[[^,\]=]*+(?:,[^,\]=]*+/[^,\]=]*+)?")
_WRAPPERS = re.compile(r"\W*(?:\w+\.)?(?:b?float\d*|tensor|array)$")
_NAME_END = " :=|([{<\"'\t.,#~@\u2026-"
_SEPARATORS = re.compile(r"[|,;:=()\[\]{}<>\"'\t]")
_JUNK, _NEVER, _RANKS, _NO_COUNTER = (
    frozenset(words.split())
    for words in (
        "info debug warning root log logger main trainer",
        "best lowest min minimum previous prev last old scale scaler scaling",
        "rank local_rank global_rank worker gpu device",
        "per time tokens samples ms sec s seconds avg best save every log warmup total max num skipped nan remaining last "
        "previous next each ago",
    )
)
_FACTS = {
    "tokens_per_iteration_will_be": PER_STEP,
    "total_desired_batch_size": PER_STEP,
    "number_of_parameters": PARAMETERS,
    "num_epochs": "epochs",
    "total_optimization_steps": "optimization_steps",
}
"""Facts of the run that a line states, by the name of the number."""


class Kind(Enum):
    """What the lines of a form are."""

    OTHER = "other"
    STEP = "step"
    FACT = "fact"
    TRAINING = "training"
    EVALUATION = "evaluation"
    LEFT_OUT = "left out"
    UNREAD = "unread"


@dataclass(eq=False)
class Form:
    """Lines that differ in their numbers alone.

    names: column of each number that is read, by its position in the line. opening: words up to the loss. marks: words of a
    split in it. decimals, losses: positions of numbers that must be decimal to be losses, and of all losses. unit: that of
    a fact, such as M. fast: an expression of whole lines. programs, is_evaluation: grammars that take them. rows, lines,
    values: what they held.
    """

    kind: Kind
    names: Mapping[int, str] = field(default_factory=dict)
    opening: str = ""
    marks: frozenset[str] = frozenset()
    decimals: tuple[int, ...] = ()
    losses: tuple[int, ...] = ()
    key: str = ""
    unit: str = ""
    fast: re.Pattern[bytes] | None = None
    programs: frozenset[str] = frozenset()
    is_evaluation: bool = False
    rows: "array[int]" = field(default_factory=lambda: array("q"))
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def has_step(self) -> bool:
        """Return whether its lines have a step of their own."""
        return any(name in COUNTERS or name == "batch" for name in self.names.values())


def _template(text: str) -> re.Pattern[str]:
    pieces = (re.escape(piece).replace(r"\#", MARK).replace("#", MARK) for piece in text.split("..."))
    return re.compile(".*".join(pieces), re.IGNORECASE)


_TEMPLATES = {name: [*map(_template, (*grammar.training, *grammar.evaluation))] for name, grammar in GRAMMARS.items()}
_EVALUATIONS = [*map(_template, (line for grammar in GRAMMARS.values() for line in grammar.evaluation))]


def form_of(key: str, whole: Sequence[int] = ()) -> Form:
    """Return what the lines of a key are: a line with marks in the place of its numbers, and single spaces.

    whole: positions of whole numbers, after a word such as `train` that has a loss or something else behind it.
    """
    literals = key.lower().split(MARK)
    names: dict[int, str] = {}
    counters: dict[int, str] = {}
    decimals, pending, unread, left_out = [], "", False, False
    skipped = -1
    for at, (before, after) in enumerate(pairwise(literals)):
        if at == skipped or at in whole:
            continue
        name, pending = _name(before) or pending, ""
        is_unit = bool(re.match(r"[a-z%]", after))
        is_ratio = after.strip() in ("/", "of") and at + 2 < len(literals)
        if is_ratio and not name and not before.endswith("/") and not literals[at + 2].startswith("/"):
            names |= {at: "batch", at + 1: "batches"}
            skipped = at + 1
        elif (counter := _counter(name, before, after, at)) and not is_unit:
            counters[at] = counter
            if is_ratio:
                names[at + 1], skipped = END, at + 1
            pending = found[1] if (found := re.match(r"(.*loss)_(?:at|after|for|on)_", name)) else ""
        elif name.endswith("epoch") and set(name.split("_")[:-1]) <= _JUNK | TRAINING | VALIDATION | {"current"}:
            names[at] = "epoch"
            if is_ratio:
                names[at + 1], skipped = "epochs", at + 1
        elif is_unit and not PERPLEXITY.search(name) and name not in _FACTS:
            continue
        elif (
            (said := loss_name(name)) or name in ("trl", "tel") or set(name.split("_")) <= TRAINING | VALIDATION | TEST
        ):
            if not name:
                continue
            unread |= after == "," and at + 2 < len(literals)  # a decimal comma
            if said is None:
                said = loss_name({"trl": "loss", "tel": "val_loss"}.get(name, f"{name}_loss"))
                decimals += [] if name in ("trl", "tel") else [at]
            names[at] = name if said is None or said.is_part else _loss_column(name, said.split, names)
        elif PERPLEXITY.search(name):
            names[at] = "validation_perplexity" if set(name.split("_")) & VALIDATION else "perplexity"
        elif "loss" in name.split("_") or "loss" in re.split(r"\W", name):
            words = set(re.split(r"[^a-z]+", name))
            left_out |= bool(words & (_NEVER | VALIDATION | TEST))
            unread |= not words & (_NEVER | VALIDATION | TEST)
        elif name in _FACTS or name in OF_THE_BATCH or name in _RANKS:
            names[at] = _FACTS.get(name, name)
        elif name in ("lr", "learning_rate") or name.endswith(("_norm", "gnorm")) or name == "norm":
            names[at] = "learning_rate" if name.startswith("l") else "gradient_norm"
    names |= _distinct_counters(counters, names)
    names = dict(sorted(names.items()))
    return _classified(key, literals, names, tuple(decimals), unread, left_out)


def _name(before: str) -> str:
    """Return the plain name at the end of the text in front of a number."""
    text = re.sub(r"\([^()]*\)", "", before[-200:]).rstrip(_NAME_END)
    text = _WRAPPERS.sub("", text).rstrip(_NAME_END)
    name = plain_name(_SEPARATORS.split(text)[-1].strip(" -")).removesuffix("_value")
    words = name.split("_")
    while words and words[0] in _JUNK and len(words) > 1:
        words = words[1:]
    return "_".join(words) if re.search("[a-z]", name) else ""


def _counter(name: str, before: str, after: str, at: int) -> str:
    """Return the column of a number that counts steps, "" if it counts something else."""
    if name in COUNTERS:
        return name
    if name == "batch":
        return "iteration"
    if at == 0 and (name == "s" or (name in VALIDATION | TEST and after.startswith((":", " |")))):
        return "step"
    if at == 0 and not name and before.strip(" [(#") == "" and re.match(r"[\])]?[ :|,]", after):
        return "first"
    *words, last = name.split("_")
    if "loss" in words and not {"at", "after", "for", "on"} & set(words):
        return ""
    if last in ("step", "steps", "iteration", "iter", "update", "updates") and not set(words) & _NO_COUNTER:
        return "global_step" if "global" in words else "optimizer_step" if "optimizer" in words else last
    return ""


def _loss_column(name: str, split: frozenset[str], names: Mapping[int, str]) -> str:
    """Return the column of a loss, such as `validation_loss`, or its own name beside another of that one."""
    content = [word for word in re.split(r"[^a-z0-9]+", name) if word not in TRAINING | VALIDATION | TEST | {"reduced"}]
    content = ["loss"] if content in ([], ["trl"], ["tel"]) else content
    prefix = "validation_" if split is VALIDATION else "test_" if split is TEST else ""
    column = prefix + "_".join(dict.fromkeys(content))
    return name if column in names.values() else column


def _distinct_counters(counters: Mapping[int, str], names: Mapping[int, str]) -> dict[int, str]:
    """Return the columns of counters: a number at the start of a line counts only where nothing else does."""
    named = {at: counter for at, counter in counters.items() if counter != "first"}
    if not named and "batch" not in names.values():
        named = dict.fromkeys(counters, "step")
    return {at: counter for at, counter in named.items() if counter not in [named[one] for one in named if one < at]}


def _classified(
    key: str, literals: Sequence[str], names: dict[int, str], decimals: tuple[int, ...], unread: bool, left_out: bool
) -> Form:
    """Return the form of a line with these names: a row, a step that later lines belong to, a fact, or something else."""
    losses = {at: said for at, name in names.items() if (said := loss_name(name)) and not said.is_part}
    programs = frozenset(name for name, lines in _TEMPLATES.items() if any(line.fullmatch(key) for line in lines))
    if "MLflow" in programs:
        names, losses = {1: "loss", 2: "step"}, {1: LossName(TRAINING, False, False, False, False)}
    if SUMMARY in key:
        return Form(Kind.LEFT_OUT)
    if not losses or unread:
        kind = Kind.UNREAD if unread else Kind.LEFT_OUT if left_out else Kind.OTHER
        if not unread and set(names.values()) & (COUNTERS.keys() | {"batch"}):
            kind = Kind.STEP if kind is Kind.OTHER else kind
        if not unread and set(names.values()) & {*_FACTS.values()}:
            kind = Kind.FACT
        found = re.match(r"[kmb](?![a-z])", literals[min(names) + 1]) if kind is Kind.FACT else None
        unit = found[0].upper() if found else ""
        return Form(kind, names, unit=unit, programs=programs)
    text = _OPENING_BAR.sub("", MARK.join(literals[: min(losses) + 1]))
    words = re.findall(r"[a-z][a-z_/]*", text)
    marks = frozenset(words) & (VALIDATION | TEST)
    is_evaluation = any(line.fullmatch(key) for line in _EVALUATIONS)
    marks |= {"eval"} if is_evaluation else frozenset()
    has_training = any(said.split is TRAINING for said in losses.values())
    kind = Kind.TRAINING if has_training else Kind.EVALUATION
    return Form(
        kind,
        names,
        " ".join(words),
        marks,
        decimals,
        losses=tuple(losses),
        key=key,
        fast=_fast(key, names, decimals, (*losses,)),
        programs=programs,
        is_evaluation=is_evaluation,
    )


def _fast(
    key: str, names: Mapping[int, str], decimals: Sequence[int], losses: Sequence[int]
) -> re.Pattern[bytes] | None:
    """Return an expression of the lines of a form, whose groups are the numbers that are read."""
    parts = [r"\s++".join(map(re.escape, literal.split(" "))) for literal in key.split(MARK)]
    numbers = [f"({_CORE})" if at in names else f"(?>{_CORE})" for at in range(len(parts) - 1)]
    numbers = [rf"(?=[-+]?\d*+\.){number}" if at in decimals else number for at, number in enumerate(numbers)]
    numbers = [rf"(?!\d*+,){number}" if at in losses else number for at, number in enumerate(numbers)]
    # Spaces around numbers differ with their width.
    text = "".join(part + number for part, number in zip(parts, [*numbers, ""], strict=True))
    return re.compile(rf"\s*+{text}\s*+".encode()) if len(numbers) < 60 else None
