"""Whoever takes raw values or a source of noise says what that means for privacy."""

from collections.abc import Iterator

from public_names import Name

from unit.docs_site.read_source import LIBRARY

DRAWS_NOISE_ALONE = {
    "tulle.data.features.private_vocabulary.RowCountNoise.sample_noise",
    "tulle.mechanisms.discrete_gaussian.sample_discrete_gaussian",
    "tulle.mechanisms.discrete_laplace.sample_discrete_laplace",
    "tulle.mechanisms.exact.decide_bernoulli_exps",
    "tulle.mechanisms.exact.sample_bernoulli",
    "tulle.mechanisms.exact.sample_bernoulli_exp",
    "tulle.mechanisms.exact.sample_geometric",
    "tulle.mechanisms.exact.sample_signed_floors",
    "tulle.mechanisms.exact.signed_floors_of_words",
    "tulle.mechanisms.key_thresholds.GaussianKeyThresholdConfig.sample_noise",
    "tulle.mechanisms.key_thresholds.KeyThresholdConfig.sample_noise",
    "tulle.mechanisms.key_thresholds.LaplaceKeyThresholdConfig.sample_noise",
    "tulle.mechanisms.laplace.sample_rounded_laplace",
    "tulle.mechanisms.polya.sample_noise_shares",
    "tulle.mechanisms.polya.sample_polya",
    "tulle.mechanisms.gaussian.rounded_normals_of_words",
    "tulle.mechanisms.gaussian.sample_rounded_normal",
    "tulle.mechanisms.staircase_noise.sample_staircase",
    "tulle.mechanisms.thresholds.sample_below",
    "tulle.mechanisms.thresholds.sample_subsets",
}
"""Samplers: no data go in, and whoever adds the noise to data has the note."""
DRAWS_A_KEY = {
    "tulle.data.samplers.batch.sampling_generator",
    "tulle.measure.queries.measuring.fresh_salt",
    "tulle.train.steps.gpu.device_keys.device_key",
}
"""Keys of generators and hashes: no data go in, and the docstring says that they are secret."""


def silent_names() -> Iterator[str]:
    for module in LIBRARY.values():
        for path, function in functions_of(module.name, module.members):
            if is_sensitive(function) and function.docstring.section("Privacy") is None:
                yield path


def functions_of(place: str, members: tuple[Name, ...]) -> Iterator[tuple[str, Name]]:
    for member in members:
        path = f"{place}.{member.name}"
        if member.kind == "function":
            yield path, member
        yield from functions_of(path, member.members)


def is_sensitive(function: Name) -> bool:
    return any(name == "rng" or name.startswith("raw_") for name in function.parameters)


def takes_raw_values(path: str) -> bool:
    found = [
        function
        for module in LIBRARY.values()
        for each, function in functions_of(module.name, module.members)
        if each == path
    ]
    return any(name.startswith("raw_") for function in found for name in function.parameters)


def test_whoever_takes_raw_values_or_noise_has_a_privacy_note() -> None:
    assert set(silent_names()) - DRAWS_NOISE_ALONE - DRAWS_A_KEY == set()


def test_every_exception_is_still_needed_and_takes_no_raw_values() -> None:
    excepted = DRAWS_NOISE_ALONE | DRAWS_A_KEY
    assert excepted - set(silent_names()) == set()
    assert [path for path in sorted(excepted) if takes_raw_values(path)] == []
