import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from unit.train.small_data import make_examples

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "quality"))

from offset_steps import OffsetNet, StepSettings

from tulle.train import ExampleSet

NUM_ROWS = 12


def small_net(examples: ExampleSet, *, noise_multiplier: float, clip_norm: float) -> OffsetNet:
    settings = StepSettings(
        noise_multiplier=noise_multiplier,
        sampling_prob=0.5,
        num_steps=3,
        learning_rate=0.1,
        clip_norm=clip_norm,
        width=5,
        embedding_dim=2,
    )
    return OffsetNet(examples, settings, seed=1, device="cpu")


def tensors(examples: ExampleSet) -> tuple[Tensor, Tensor, Tensor]:
    batch = examples.batch(np.arange(NUM_ROWS), torch.device("cpu"))
    ids = torch.cat([batch.public_ids, batch.sensitive_ids], dim=1)
    return ids, batch.labels, torch.linspace(-2, 1, NUM_ROWS)


@pytest.mark.parametrize("clip_norm", [0.05, 1e3])
def test_sums_are_those_of_clipped_gradients_of_single_rows(clip_norm: float) -> None:
    examples = make_examples(num_rows=NUM_ROWS)
    net = small_net(examples, noise_multiplier=1.0, clip_norm=clip_norm)
    ids, labels, offsets = tensors(examples)
    weights = [net._table, *net._weights, *net._biases]
    expected = [torch.zeros_like(one) for one in weights]
    for one in weights:
        one.requires_grad_()
    for row in range(NUM_ROWS):
        own = slice(row, row + 1)
        logits = net.log_odds(ids[own], offsets[own])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[own])
        gradients = torch.autograd.grad(loss, weights)
        norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients))
        for total, gradient in zip(expected, gradients, strict=True):
            total += gradient * min(1.0, clip_norm / float(norm))
    with torch.no_grad():
        found = net._clipped_sums(ids + net._starts, labels, offsets)
    for sums, total in zip(found, expected, strict=True):
        torch.testing.assert_close(sums, total, atol=1e-6, rtol=1e-4)


def test_noise_moves_rows_of_the_table_that_no_batch_reads() -> None:
    examples = make_examples(num_rows=NUM_ROWS)
    ids, labels, offsets = tensors(examples)
    tables = []
    for noise_multiplier in (0.0, 1.0):
        net = small_net(examples, noise_multiplier=noise_multiplier, clip_norm=1.0)
        before = net._table.clone()
        net.train(ids, labels, offsets)
        is_read = torch.zeros(len(before), dtype=torch.bool)
        is_read[(ids + net._starts).flatten()] = True
        tables.append((net._table - before)[~is_read])
    assert len(tables[0]) > 0
    assert not tables[0].any()
    assert tables[1].all()
