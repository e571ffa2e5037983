"""Least squares with few unknowns that must not be negative, relative to each measured value."""

from __future__ import annotations

from collections.abc import Sequence

_DEPENDENT = 1e-9


def fit(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Constants that explain measured durations best, each weighted by its inverse.

    Args:
        rows: For each measurement, what each constant is multiplied with.
        seconds: What was measured.

    Returns:
        One constant a column. One that would be negative is 0, and so is one that no measurement has, or none can
        tell from the columns before it.
    """
    count = len(rows[0])
    used = _independent(rows, seconds)
    while used:
        found = _solve(rows, seconds, used)
        worst = min(range(len(used)), key=lambda at: found[at])
        if found[worst] >= 0:
            result = [0.0] * count
            for column, value in zip(used, found, strict=True):
                result[column] = value
            return result
        del used[worst]
    return [0.0] * count


def _independent(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[int]:
    """The columns of which none is a sum of multiples of those before it, by Gram and Schmidt's way."""
    kept: list[int] = []
    basis: list[list[float]] = []
    for column in range(len(rows[0])):
        vector = [row[column] / measured for row, measured in zip(rows, seconds, strict=True)]
        whole = sum(value * value for value in vector)
        for unit in basis:
            share = sum(a * b for a, b in zip(vector, unit, strict=True))
            vector = [a - share * b for a, b in zip(vector, unit, strict=True)]
        rest = sum(value * value for value in vector)
        if rest > whole * _DEPENDENT:
            kept.append(column)
            basis.append([value / rest**0.5 for value in vector])
    return kept


def _solve(rows: Sequence[Sequence[float]], seconds: Sequence[float], used: list[int]) -> list[float]:
    """The normal equations, by elimination; columns are scaled first, for pairs and tokens differ by millions."""
    scale = [max(abs(row[column]) for row in rows) for column in used]
    size = len(used)
    matrix = [[0.0] * (size + 1) for _ in range(size)]
    for row, measured in zip(rows, seconds, strict=True):
        values = [row[column] / by / measured for column, by in zip(used, scale, strict=True)]
        for i in range(size):
            for j in range(size):
                matrix[i][j] += values[i] * values[j]
            matrix[i][size] += values[i]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] / scale[i] for i in range(size)]
