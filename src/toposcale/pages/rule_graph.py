"""The graph of the workflow's rules as a small layered SVG, from what `snakemake --rulegraph dot` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from graphlib import TopologicalSorter

from markupsafe import Markup

Needs = Mapping[str, Set[str]]
"""Rule -> the rules whose files it reads."""

LETTER, BOX, ROW, BETWEEN = 6.7, 24, 34, 46
"""In SVG units: the width of a letter, the height of a box and of a row, and the room between columns."""


def parse_dot(text: str) -> dict[str, set[str]]:
    """What needs what; a rule that needs itself (checkpoint after checkpoint) is not told."""
    names = dict(re.findall(r'^\s*(\d+)\s*\[label = "([^"]+)"', text, re.MULTILINE))
    needs: dict[str, set[str]] = {name: set() for name in names.values()}
    for first, then in re.findall(r"^\s*(\d+) -> (\d+)", text, re.MULTILINE):
        if first != then:
            needs[names[then]].add(names[first])
    return needs


def reduced(needs: Needs) -> dict[str, set[str]]:
    """Without what a longer way implies (transitive reduction), and in the order of the work."""
    behind: dict[str, set[str]] = {}
    kept: dict[str, set[str]] = {}
    for rule in TopologicalSorter(needs).static_order():
        behind[rule] = {*needs[rule]} | {far for near in needs[rule] for far in behind[near]}
        kept[rule] = {near for near in needs[rule] if not any(near in behind[other] for other in needs[rule])}
    return kept


def columns(needs: Needs) -> list[list[str]]:
    """Rules by the length of the longest way to them; within a column, near what they need."""
    depth: dict[str, int] = {}
    for rule in TopologicalSorter(needs).static_order():
        depth[rule] = 1 + max((depth[near] for near in needs[rule]), default=-1)
    height: dict[str, float] = {}
    found = []
    for level in range(max(depth.values(), default=-1) + 1):
        column = [rule for rule in depth if depth[rule] == level]
        column.sort(
            key=lambda rule: (sum(height[near] for near in needs[rule]) / (len(needs[rule]) or 1), rule)
        )
        height.update((rule, row - len(column) / 2) for row, rule in enumerate(column))
        found.append(column)
    return found


def svg(needs: Needs) -> Markup:
    """The graph drawn from left to right, an arrow from what is needed to what needs it."""
    needs = reduced(needs)
    drawn = columns(needs)
    tallest = max(map(len, drawn), default=0)
    place: dict[str, tuple[float, float, float]] = {}
    x = 0.0
    for column in drawn:
        width = LETTER * max(map(len, column)) + 16
        for row, rule in enumerate(column):
            place[rule] = (x, (row + (tallest - len(column)) / 2) * ROW + 2, width)
        x += width + BETWEEN
    parts = []
    for rule, (left, top, _) in place.items():
        for near in sorted(needs[rule]):
            start, y = place[near][0] + place[near][2], place[near][1] + BOX / 2
            middle = left - BETWEEN / 2
            parts.append(
                Markup('<path d="M{:.0f} {:.0f}H{:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}"/>').format(
                    start, y, left - BETWEEN, middle, y, middle, top + BOX / 2, left, top + BOX / 2
                )
            )
    for rule, (left, top, width) in place.items():
        parts.append(
            Markup('<rect x="{:.0f}" y="{:.0f}" width="{:.0f}" height="{}" rx="5"/>').format(
                left, top, width, BOX
            )
        )
        parts.append(Markup('<text x="{:.0f}" y="{:.0f}">{}</text>').format(left + 8, top + 16, rule))
    return Markup('<svg class="graph" role="img" viewBox="-2 0 {:.0f} {}">{}</svg>').format(
        max(x - BETWEEN, 0) + 4, tallest * ROW, Markup("").join(parts)
    )
