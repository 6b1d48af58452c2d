"""Equal shares of an epsilon that together never exceed it."""

import math
from fractions import Fraction

from tulle.privacy.fields import check_count


def epsilon_share(epsilon: float, num_shares: int) -> float:
    """epsilon / num_shares, rounded down where as many floats would add up to more."""
    check_count("num_shares", num_shares)
    share = epsilon / num_shares
    while num_shares * Fraction(share) > Fraction(epsilon):
        share = math.nextafter(share, 0.0)
    return share
