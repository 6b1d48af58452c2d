"""Every kernel gives what its twin in torch gives on the same inputs. Needs a GPU."""

import contextlib
import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.contributions import TableReads
from tulle.train.steps.gpu import device_keys as random_ops
from tulle.train.steps.gpu import layer_ops, row_ops
from tulle.train.steps.gpu.device_keys import device_key
from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows
from tulle.train.steps.gpu.layer_ops import DenseRule, exact_product
from tulle.train.steps.step_settings import MonitorCoordinates

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SINGLE, HALF = torch.float32, torch.bfloat16
CLOSE = 1e-6

kernels_on: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
"""What makes work on `GPU` go to kernels; on a GPU it goes there by itself."""


@dataclasses.dataclass
class Twins:
    """Tensors after a call, and what it returned: in torch on the processor, and by kernels."""

    plain: list[Tensor]
    kernel: list[Tensor]


def run_both(work: Callable[..., object], *tensors: Tensor) -> Twins:
    """Calls with tensors of either device; what is returned is appended to them."""
    plain = [values.clone() for values in tensors]
    plain += _as_list(work(*plain))
    there = [values.clone().to(GPU) for values in tensors]
    with kernels_on():
        there += _as_list(work(*there))
    return Twins(plain, [values.cpu() for values in there])


def _as_list(returned: object) -> list[Tensor]:
    if returned is None:
        return []
    return [returned] if isinstance(returned, Tensor) else list(returned)  # type: ignore[call-overload]


def assert_near(twins: Twins, tolerance: float = CLOSE) -> None:
    """By the norm of each tensor; what is no number must be so in both."""
    for plain, kernel in zip(twins.plain, twins.kernel, strict=True):
        assert plain.dtype == kernel.dtype
        assert plain.shape == kernel.shape
        if not plain.is_floating_point():
            assert torch.equal(plain, kernel)
            continue
        if plain.dtype is HALF:
            assert_one_rounding(plain, kernel)
            continue
        for is_such in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(is_such(plain), is_such(kernel))
        one, other = (torch.nan_to_num(v.double(), 0, 0, 0) for v in (plain, kernel))
        assert float((one - other).norm()) <= tolerance * float(one.norm()) + 1e-30


def assert_one_rounding(plain: Tensor, kernel: Tensor) -> None:
    assert torch.equal(plain.isfinite(), kernel.isfinite())
    one, other = (torch.nan_to_num(v.double(), 0, 0, 0) for v in (plain, kernel))
    assert bool(((one - other).abs() <= 2.0**-7 * one.abs() + 1e-37).all())
    assert float((one != other).double().mean()) <= 0.02


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = SINGLE) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng).to(dtype)


def padded(num_rows: int, width: int, stride: int, seed: int, dtype: torch.dtype) -> Tensor:
    values = normals(num_rows, stride, seed=seed)
    values[:, width:] = 0
    return values.to(dtype)


def ids(num_rows: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(num_rows, shape, generator=torch.Generator().manual_seed(seed))


KEY = device_key(SeededNoise(3), CPU)
WIDTHS = [(37, 11, 12), (5, 8, 16), (70, 256, 264), (1, 1, 4)]
"""Rows, values and what they are padded to."""


@pytest.mark.parametrize("draw", [0, 5, 2**31 + 3, 2**32 - 4])
@pytest.mark.parametrize("num_entities", [1, 255, 1000])
def test_words_are_the_same_to_the_last_bit(num_entities: int, draw: int) -> None:
    twins = run_both(
        lambda key, first: random_ops.words(key, first, 3, num_entities), KEY, torch.tensor([draw])
    )
    assert_near(twins)
    assert len(set(twins.kernel[-1].flatten().tolist())) > 3 * num_entities


@pytest.mark.parametrize("size", [1, 2, 3, 511, 512, 513, 10_001])
def test_normals(size: int) -> None:
    draw = torch.tensor([7])
    twins = run_both(
        lambda out, key, which: random_ops.fill_normals(out, key=key, draw=which),
        torch.zeros(size),
        KEY,
        draw,
    )
    assert_near(twins)
    assert len(set(twins.kernel[0].tolist())) == size


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("sizes", WIDTHS)
def test_a_relu_forward_and_back(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    num_rows, width, stride = sizes
    values = padded(num_rows, width, stride, 1, dtype)
    bias = padded(1, width, stride, 2, SINGLE)[0]
    values[0, 0] = math.nan
    squares = torch.zeros(num_rows)
    forward = run_both(layer_ops.relu_rows, values, bias, squares)
    assert_near(forward)
    outputs = forward.plain[0]
    grads = padded(num_rows, width, stride, 3, dtype)
    assert_near(run_both(layer_ops.relu_rows_backward, grads, outputs, squares))


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("sizes", WIDTHS)
def test_logits_forward_and_back(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    num_rows, width, stride = sizes
    values = padded(num_rows, width, stride, 1, dtype).relu()
    weight = padded(1, width, stride, 2, SINGLE)[0]
    logits = normals(num_rows, seed=3)
    assert_near(run_both(layer_ops.add_products, logits, values, weight))
    squares = torch.zeros(num_rows)
    for has_relu in (True, False):
        twins = run_both(
            lambda g, w, v, q, has=has_relu: layer_ops.products_backward(g, w, v, q, has_relu=has),
            logits,
            weight,
            values,
            squares,
        )
        assert_near(twins)


def some_factors(num_rows: int) -> Tensor:
    factors = torch.rand(num_rows, generator=torch.Generator().manual_seed(4))
    factors[::5] = 1
    factors[::7] = 0
    return factors


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("sizes", WIDTHS)
def test_rows_are_scaled_cleared_and_added_up(
    sizes: tuple[int, int, int], dtype: torch.dtype
) -> None:
    num_rows, width, stride = sizes
    grads = padded(num_rows, width, stride, 1, dtype)
    inputs = normals(num_rows, 20, seed=2, dtype=dtype)
    factors = some_factors(num_rows)
    grads[::7], inputs[::7] = math.inf, math.nan
    assert_near(run_both(layer_ops.scale_rows, grads, inputs, factors))
    assert_near(run_both(layer_ops.weighted_rows, inputs, factors))


def test_rows_that_need_no_scaling_stay_as_they_are() -> None:
    grads, inputs = normals(70, 12, dtype=HALF), normals(70, 20, dtype=HALF)
    twins = run_both(layer_ops.scale_rows, grads, inputs, torch.ones(70))
    assert torch.equal(twins.kernel[0], grads)
    assert torch.equal(twins.kernel[1], inputs)


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
def test_products_of_stored_values_add_up_in_single_precision(dtype: torch.dtype) -> None:
    left, right = normals(4096, 24, seed=1, dtype=dtype), normals(4096, 40, seed=2, dtype=dtype)
    found = exact_product(left.to(GPU), right.to(GPU)).cpu()
    assert found.dtype == torch.float32
    expected = left.double().t() @ right.double()
    assert float((found - expected).norm()) < 1e-5 * float(expected.norm())


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("has_one", [True, False])
@pytest.mark.parametrize(("num_reads", "dim"), [(5, 7), (1, 1), (4, 16), (3, 33)])
def test_rows_are_gathered(num_reads: int, dim: int, has_one: bool, dtype: torch.dtype) -> None:
    width = num_reads * dim
    for stride in {width + 1, width + 8, width + (0 if not has_one else 5)}:
        twins = run_both(
            lambda table, reads, out, q: row_ops.gather_rows(table, reads, out, q, has_one=has_one),
            normals(9, dim),
            ids(9, 37, num_reads),
            torch.full((37, stride), 5.0, dtype=dtype),
            torch.ones(37),
        )
        assert_near(twins)


@pytest.mark.parametrize("dtype", [SINGLE, HALF])
@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize(("num_reads", "dim"), [(5, 7), (1, 1), (4, 16), (17, 33)])
def test_norms_and_sums_of_tables(
    num_reads: int, dim: int, may_repeat: bool, dtype: torch.dtype
) -> None:
    width = num_reads * dim
    grads = padded(37, width, width + 3, 1, dtype)
    # Rows of their own for each read, unless an example may read one twice.
    reads = ids(9, 37, num_reads)
    if not may_repeat:
        reads += 9 * torch.arange(num_reads)
    twins = run_both(
        lambda q, g, r: row_ops.add_table_norms(
            q, g, TableReads(table="a", rows=r, may_repeat=may_repeat), dim
        ),
        torch.ones(37),
        grads,
        reads,
    )
    assert_near(twins)
    factors = some_factors(37)
    grads[::7] = math.nan
    added = run_both(
        row_ops.add_rows,
        torch.zeros(9 * num_reads, dim),
        grads,
        reads,
        factors,
        torch.tensor([0.125]),
    )
    assert bool(added.kernel[0].isfinite().all())
    assert_near(added)


def test_losses_and_their_gradients() -> None:
    logits = 8 * normals(300)
    logits[:8] = torch.tensor([math.nan, math.inf, -math.inf, 60, -60, 0, 1e-8, -1e-8])
    for label in (0.0, 1.0):
        labels = torch.full((300,), label)
        twins = run_both(layer_ops.losses_and_grads, logits[3:], labels[3:])
        assert_near(twins)
        # Of infinite logits the gradient alone is used; the loss counts as its bound.
        twins = run_both(lambda x, y: layer_ops.losses_and_grads(x, y)[1], logits, labels)
        assert_near(twins)


@pytest.mark.parametrize("limit", [0.03, 1.0, 50.0])
def test_clip_factors_and_the_monitor(limit: float) -> None:
    squares = (4 * normals(300)).square()
    squares[:4] = torch.tensor([math.nan, math.inf, 0.0, 0.25 * limit**2])
    losses = (3 * normals(300, seed=2)).abs()
    losses[5:8] = torch.tensor([math.nan, math.inf, 0.0])
    weights = (normals(300, seed=3) > -1).float()
    twins = run_both(
        lambda q, loss, w: layer_ops.clip_factors(
            q, loss, w, limit=limit, coordinates=MonitorCoordinates(clip_norm=1.0, share=0.1)
        ),
        squares,
        losses,
        weights,
    )
    assert_near(twins)
    assert not bool(twins.kernel[3][:2].any())


@pytest.mark.parametrize("noise_stddev", [0.0, 0.3])
@pytest.mark.parametrize("size", [1, 1024, 3001])
def test_updates_of_layers(size: int, noise_stddev: float) -> None:
    rule = DenseRule(noise_stddev=noise_stddev, divisor=7.0, momentum=0.9, weight_decay=0.01)
    twins = run_both(
        lambda w, m, s, n, r: layer_ops.update_weights(w, m, s, n, rate=r, rule=rule),
        *(normals(size, seed=seed) for seed in range(4)),
        torch.tensor([0.05], dtype=torch.float64),
    )
    assert_near(twins)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_ages(momentum: float, weight_decay: float) -> None:
    def moments(now: Tensor) -> list[Tensor]:
        device = now.device
        ages = DeviceAges(
            momentum=momentum, weight_decay=weight_decay, max_steps=450, device=device
        )
        for step in range(450 if momentum else 40):
            rate = 0.0 if step % 9 == 4 else 0.3 / (1 + step % 7)
            ages.end_step(torch.tensor([rate], dtype=torch.float64, device=device))
        return [ages.now, ages.kept, ages.drift, ages.weight_variance, ages.covariance]

    assert_near(run_both(moments, torch.zeros(1)), 1e-12)


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "dim"), [(0.9, 0.0, 33), (0.0, 0.0, 4), (0.5, 0.1, 1)]
)
def test_rows_with_their_noise(momentum: float, weight_decay: float, dim: int) -> None:
    """The same words give the same noise, so whole trainings agree; reads repeat rows."""

    def train(weights: Tensor) -> list[Tensor]:
        device = weights.device
        ages = DeviceAges(
            momentum=momentum, weight_decay=weight_decay, max_steps=100, device=device
        )
        rows = DeviceRows(weights, ages, noise_stddev=0.1, max_reads=99, rng=SeededNoise(1))
        ones = torch.ones(8, device=device)
        seen = []
        for step in range(30):
            if step == 20:
                rows.flush()
                ages.reset()
                momentum_of_rows = rows.release_momentum()
                seen += [] if momentum_of_rows is None else [momentum_of_rows.clone()]
            reads = ids(50, 8, 5, seed=step).to(device)
            rows.catch_up(reads, torch.tensor([step], device=device))
            grads = (0.1 * weights[reads]).flatten(1)
            rows.add_gradient(grads, reads, ones, ones[:1])
            rate = torch.tensor([0.05 + 0.01 * (step % 3)], dtype=torch.float64, device=device)
            ages.end_step(rate)
        rows.flush()
        return [*seen, rows.mean, rows.variance, rows.exact_at]

    assert_near(run_both(train, normals(50, dim)), 3e-6)


def test_a_row_that_all_examples_read_is_brought_up_to_date_once() -> None:
    def weights_after(weights: Tensor) -> Tensor:
        device = weights.device
        ages = DeviceAges(momentum=0.9, weight_decay=0.0, max_steps=9, device=device)
        rows = DeviceRows(weights, ages, noise_stddev=1.0, max_reads=9000, rng=SeededNoise(1))
        reads = torch.zeros(3000, 3, dtype=torch.int64, device=device)
        reads[:, 1] = ids(7, 3000).to(device)
        reads[:, 2] = torch.arange(3000, device=device) % 40
        for step in range(4):
            rows.catch_up(reads, torch.tensor([step], device=device))
            ages.end_step(torch.tensor([0.5], dtype=torch.float64, device=device))
        return rows.num_listed

    twins = run_both(weights_after, normals(50, 8))
    assert_near(twins)
    assert int(twins.kernel[-1]) == 40
