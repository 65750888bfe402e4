"""Match names of checkpoints, branches and files that contain a step, by a pattern such as `checkpoint-{step}`."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from toposcale.io.errors import UserError

_GROUPED = r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])"  # 1,000
_NUMBER = re.compile(rf"{_GROUPED}|\d+(?:\.\d+)*")
_STEP = f"{_GROUPED}|[0-9]+"
_STEP_WITH_UNIT = rf"{_STEP}|[0-9]+\.[0-9]+"  # 1.5k
# What stands before the number of a step, where several numbers of a name vary; the first that fits.
_STEPS = re.compile(r"(step|iter|iteration|update)s?[=_-]?$", re.I)
_EPOCHS = re.compile(r"(epoch|(?<![a-z])ep)s?[=_-]?$", re.I)
_UNITS = _STEPS, _EPOCHS

# What stands behind a number of parameters or of thousands of steps.
_SIZE = re.compile(r"([kmb])(?![a-z])", re.I)
_FACTORS = {"k": 1_000, "m": 1_000_000}
_EXPONENT = re.compile(r"e(\d{1,2})(?![0-9a-z])", re.I)  # of 1e3

_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d([-_]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)")

# A hash of a commit, with letters and digits: not d100, nor step1000.
_HASH = re.compile(r"(?<![0-9a-z])(?=[0-9]*[a-f][0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,40}(?![0-9a-z])", re.I)
_NO_STEPS = re.compile(r"(seed|fold|trial|run|version|exp|experiment)[=_-]?$", re.I)


def guessed_patterns(names: Iterable[str]) -> list[str]:
    """Return the pattern of the most names that differ in one whole number, the step; several that match as many.

    Of several whole numbers that vary, the step is the one behind the word step, iter or epoch, in this order. Without
    such a word 1k is a number of parameters.
    """
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for name in sorted(names):
        texts = tuple(_NUMBER.split(name))
        if len(texts) > 1 and not re.search(r"[{}]", name) and not _HASH.search(name):
            groups.setdefault(texts, []).append(_NUMBER.findall(name))
    sizes = {pattern: len(rows) for texts, rows in groups.items() if (pattern := _pattern(texts, rows))}
    return [pattern for pattern, size in sizes.items() if size == max(sizes.values())]


def _pattern(texts: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return the pattern of names of equal texts between their numbers; "" where the step is none or not one of them."""
    numbers = [list(dict.fromkeys(column)) for column in zip(*rows, strict=True)]
    varying = [index for index, values in enumerate(numbers) if len(values) > 1 or len(rows) == 1]
    named = [index for unit in _UNITS for index in varying if unit.search(texts[index])]
    others = _numbers_of_dates(texts, rows[0]) | _parts_of_powers(texts, numbers)
    counts = [index for index in varying if index in named or not _SIZE.match(texts[index + 1])]
    integers = [index for index in counts if _are_whole(numbers[index], texts[index + 1])]
    integers = [index for index in integers if index not in others]
    whole = [index for index in integers if not _NO_STEPS.search(texts[index])]
    named = [index for index in named if index in whole]
    if not whole or (len(integers) > 1 and not named):
        return ""
    step = named[0] if named else whole[0]
    pattern = texts[0]
    for index, text in enumerate(texts[1:]):
        other = f"{{part{index + 1}}}" if index in varying and len(rows) > 1 else numbers[index][0]
        pattern += ("{step}" if index == step else other) + text
    return pattern


def _are_whole(numbers: list[str], behind: str) -> bool:
    """Return whether numbers are whole, counted in the thousands or millions that the text behind them may name."""
    return all(_whole(number, _factor(behind)) is not None for number in numbers)


def _factor(behind: str) -> int:
    """Return the factor that the text behind a number is: 1,000 of k or e3."""
    unit, power = _SIZE.match(behind), _EXPONENT.match(behind)
    return _FACTORS.get(unit[1].lower(), 1) if unit else 10 ** int(power[1]) if power else 1


def _whole(number: str, factor: int) -> int | None:
    """Return the whole number that a text times a factor is; None of 1.2345k, or of a text such as 1.2.3."""
    text = number.replace(",", "")
    if not re.fullmatch(r"\d+(\.\d+)?", text) or ("." in text and factor == 1):
        return None
    product = Decimal(text) * factor
    return int(product) if product == int(product) else None


def counts_epochs(pattern: str) -> bool:
    """Return whether the number of a pattern stands behind the word epoch."""
    return bool(_EPOCHS.search(pattern.partition("{step}")[0]))


def counts_steps(pattern: str) -> bool:
    """Return whether the number of a pattern stands behind a word for steps."""
    return bool(_STEPS.search(pattern.partition("{step}")[0]))


def possible_pattern(name: str) -> str:
    """Return the pattern of a name if its first number is a step; "" of a name without one."""
    pattern = _NUMBER.sub("{step}", name, count=1)
    return pattern if pattern != name and steps_by_name(pattern, [name]) else ""


def _numbers_of_dates(texts: tuple[str, ...], row: list[str]) -> set[int]:
    """Return the indices of the numbers of a name that are parts of a date."""
    name = texts[0] + "".join(map(str.__add__, row, texts[1:]))
    dates = [date.span() for date in _DATE.finditer(name)]
    starts = [number.start() for number in _NUMBER.finditer(name)]
    return {index for index, at in enumerate(starts) if any(start <= at < end for start, end in dates)}


def _parts_of_powers(texts: tuple[str, ...], numbers: list[list[str]]) -> set[int]:
    """Return the indices of exponents, as in 1e3, and of the numbers before one that varies: neither is a step."""
    exponents = {index for index in range(1, len(numbers)) if texts[index] in ("e", "E")}
    return exponents | {index - 1 for index in exponents if len(numbers[index]) > 1}


def steps_by_name(pattern: str, names: Iterable[str]) -> dict[int, str]:
    """Return the names that `pattern` matches, by step, ascending.

    `{step}` stands for an integer, padded or not, also as 1,000; `{step}k` and `{step}e3` for one in thousands, also as
    1.5k; any other `{group}` for letters, digits and dots, for example `stage1-step{step}-tokens{tokens}B`. Raise UserError
    if the pattern has no `{step}`, or if two names have one step.
    """
    expression = _pattern_expression(pattern)
    factor = _factor(pattern.partition("{step}")[2])
    by_step: dict[int, str] = {}
    for name in sorted(names):
        match = expression.fullmatch(name)
        if match and (step := _whole(match["step"], factor)) is not None:
            if step in by_step:
                raise UserError(
                    f"{pattern}: {by_step[step]} and {name} are both step {step}; "
                    "change the pattern so that it matches one of them"
                )
            by_step[step] = name
    return dict(sorted(by_step.items()))


def find_step(step: int, by_step: Mapping[int, str], where: str) -> str:
    """Return the name of a step; raise UserError with the nearest steps if it does not exist."""
    if step in by_step:
        return by_step[step]
    if not by_step:
        raise UserError(f"{where}: no name matches this pattern, so there is no checkpoint of step {step}")
    near = sorted(sorted(by_step, key=lambda other: abs(other - step))[:4])
    raise UserError(f"{where}: no checkpoint of step {step}; the nearest are {', '.join(map(str, near))}")


def _pattern_expression(pattern: str) -> re.Pattern[str]:
    # Text and groups in turn; an odd number of pieces, with every brace in a group.
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    texts, groups = pieces[::2], pieces[1::2]
    if any("{" in text or "}" in text for text in texts) or len(set(groups)) < len(groups):
        raise UserError(
            f"{pattern}: each {{ needs a }}, and each name in braces may occur only once, as in step{{step}}"
        )
    if not all(re.fullmatch(r"[A-Za-z_]\w*", group) for group in groups):
        raise UserError(f"{pattern}: the text in braces must be a plain name, as in step{{step}}")
    if "step" not in groups:
        raise UserError(f"{pattern}: a pattern of checkpoint names must contain {{step}}, as in step{{step}}")
    expression = re.escape(texts[0])
    for group, text in zip(groups, texts[1:], strict=True):
        step = _STEP if _factor(text) == 1 else _STEP_WITH_UNIT
        expression += rf"(?P<{group}>{step if group == 'step' else '[0-9A-Za-z.]+'})" + re.escape(text)
    return re.compile(expression)
