"""Compares what two runs of a program printed, number by number.

The texts between the numbers must be equal; the numbers are compared as
numbers. Used by the end-to-end tests.
"""

import math
import re
from dataclasses import dataclass

# A number as printf and iostream write it. Digits inside words (conv1) are text.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)(?![\w])")


class Different(Exception):
    """The runs cannot be brought into line; the message says where."""


@dataclass
class Comparison:
    """Greatest differences over all numbers (or those of the lines asked for)."""

    numbers: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    where: str = ""


def numbers_of(line):
    return [float(text) for text in NUMBER.findall(line)]


def compare(original, migrated, lines=None, floor=0.0):
    """Compares two outputs; `lines` is a predicate that picks lines by their text.
    A difference of at most `floor` is none relatively: numbers that are nearly
    zero are differences of larger ones, and have their rounding.

    Raises Different when the texts differ, when one run printed more lines, or
    when a number is NaN or infinite in one run only.
    """
    result = Comparison()
    expected, actual = original.splitlines(), migrated.splitlines()
    if len(expected) != len(actual):
        raise Different(f"{len(expected)} lines in the original, {len(actual)} in the migrated run")
    for number, (left, right) in enumerate(zip(expected, actual), 1):
        if NUMBER.sub("#", left) != NUMBER.sub("#", right):
            raise Different(f"line {number}: the texts differ\n  original: {left}\n  migrated: {right}")
        if lines is not None and not lines(left):
            continue
        for a, b in zip(numbers_of(left), numbers_of(right)):
            result.numbers += 1
            if not (math.isfinite(a) and math.isfinite(b)):
                if repr(a) != repr(b):
                    raise Different(f"line {number}: {a} against {b}")
                continue
            difference = abs(a - b)
            result.absolute = max(result.absolute, difference)
            scale = max(abs(a), abs(b))
            if difference > floor and difference / scale > result.relative:
                result.relative = difference / scale
                result.where = f"line {number}: {left}"
    return result
