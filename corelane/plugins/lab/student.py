"""Student's t distribution, from the standard library alone. Pure.

The distribution function is the regularised incomplete beta function by its continued fraction (Numerical Recipes,
section 6.4); the quantile inverts it by bisection. Both are right to about eight digits.
"""

import math
from functools import lru_cache

#: Bisections of a quantile: each halves the error.
STEPS = 100

#: Terms of the continued fraction at most, and the change at which it has settled.
TERMS, SETTLED = 1000, 1e-15

#: Stands for 0 where a division by it would follow.
TINY = 1e-300


def t_cdf(t: float, freedom: float) -> float:
    """Return the chance that a t-distributed value is at most ``t``."""
    tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1 - tail if t > 0 else tail


def t_quantile(chance: float, freedom: float) -> float:
    """Return the value that a t-distributed one stays below with this chance."""
    if chance == 0.5:
        return 0.0
    if chance < 0.5:
        return -t_quantile(1 - chance, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < chance:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < chance else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=256)
def t_reach(confidence: float, freedom: float) -> float:
    """Return how many standard errors the interval of this confidence reaches to either side."""
    return t_quantile((1 + confidence) / 2, freedom)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1 - math.exp(log_front) * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by the method of Lentz."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for factor in (even, odd):
            d, c = 1 / _not_zero(1 + factor * d), _not_zero(1 + factor / c)
            value *= d * c
        if abs(d * c - 1) < SETTLED:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
