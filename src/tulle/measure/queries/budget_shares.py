"""How epsilon and delta of a measurement are divided among its queries."""

from tulle.errors import ConfigError
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.queries.step_noise import LaplaceBudget, NoiseBudget, noise_budget
from tulle.mechanisms.key_selection import KeySelectionConfig


class BudgetShares:
    """Parts of the budget: for finding slices, for noise. All parts together cost the whole."""

    def __init__(self, config: MeasureConfig) -> None:
        total = sum(query.share for query in config.queries)
        finding = [query for query in config.queries if query.has_private_keys]
        self._config = config
        self._epsilon = {q.name: config.query_epsilon * q.share / total for q in config.queries}
        is_gaussian = config.noise == "gaussian"
        key_delta = config.delta / 2 if is_gaussian else config.delta
        self._key_delta = key_delta / max(len(finding), 1)
        if not is_gaussian:
            return
        noise_delta = config.delta / 2 if finding else config.delta
        noisy = [q for q in config.queries if q.quantity is not Quantity.REACH]
        epsilon = sum(self.noise_epsilon(query) for query in noisy)
        self._noisy_total = sum(q.share for q in noisy)
        self._gaussian = noise_budget("gaussian", epsilon, noise_delta) if noisy else None

    def noise_epsilon(self, query: Query) -> float:
        """What is left of a query's epsilon after finding its slices."""
        used = self._config.key_share if query.has_private_keys else 0.0
        return self._epsilon[query.name] * (1 - used)

    def noise(self, query: Query) -> NoiseBudget:
        """For the totals of a query."""
        if self._config.noise == "laplace":
            return LaplaceBudget(epsilon=self.noise_epsilon(query))
        if self._gaussian is None:
            raise ConfigError(f"query {query.name!r} has no Gaussian budget.")
        return self._gaussian.part(query.share / self._noisy_total)

    def selection(self, query: Query, max_slices_per_unit: int | None) -> KeySelectionConfig | None:
        """For finding the slices of a query."""
        if not query.has_private_keys:
            return None
        if max_slices_per_unit is None:
            raise ConfigError(
                f"query {query.name!r} finds its slices privately and needs max_slices_per_unit."
            )
        # Each key costs its own part; a unit is in so many at most.
        return KeySelectionConfig(
            epsilon=self._epsilon[query.name] * self._config.key_share / max_slices_per_unit,
            delta=self._key_delta / max_slices_per_unit,
            max_keys_per_unit=max_slices_per_unit,
        )
