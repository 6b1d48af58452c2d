"""What tests of selection share: profiles of shuffled reports, which take seconds each."""

import functools
from collections.abc import Iterator

import pytest

from tulle.accounting import event_rules


@pytest.fixture(scope="session", autouse=True)
def _one_profile_for_each_shuffle() -> Iterator[None]:
    """Many tests plan the same shuffle; its profile follows from public settings alone."""
    shared = functools.cache(event_rules.shuffled_profile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_rules, "shuffled_profile", shared)
        yield
