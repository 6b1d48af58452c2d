import math
from fractions import Fraction

import hypothesis.strategies as st
from hypothesis import given, settings

from tulle.mechanisms.epsilon_shares import epsilon_share


@settings(max_examples=300)
@given(epsilon=st.floats(1e-6, 100.0), num_shares=st.integers(1, 10**6))
def test_shares_of_epsilon_never_add_up_to_more(epsilon: float, num_shares: int) -> None:
    share = epsilon_share(epsilon, num_shares)
    assert Fraction(share) * num_shares <= Fraction(epsilon)
    above = math.nextafter(math.nextafter(share, math.inf), math.inf)
    assert Fraction(above) * num_shares > Fraction(epsilon)


def test_some_shares_must_be_rounded_down() -> None:
    assert any(Fraction(1.0 / k) * k > 1 for k in range(1, 100))
    assert all(Fraction(epsilon_share(1.0, k)) * k <= 1 for k in range(1, 100))
