"""Opacus ghost clipping on the batches of dpsgd.py; run by it, in an environment of its own.

Reads the task as JSON from the command line and the ids from a file. For every line on
standard input it takes one step and prints its seconds, so that it can take turns. The end
of the input makes it print its versions and peak memory.
"""

import itertools
import json
import sys
import time
import warnings

import numpy as np
import opacus
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn


class Mlp(nn.Module):
    """A perceptron on one embedding for all features."""

    def __init__(self, num_rows, num_features, dim, hidden):
        super().__init__()
        self.table = nn.Embedding(num_rows, dim)
        sizes = (num_features * dim, *hidden)
        layers = []
        for num_inputs, num_outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(num_inputs, num_outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, ids):
        """Logits as a column."""
        return self.layers(self.table(ids).flatten(1))


class FactorizationMachine(nn.Module):
    """Linear terms in column 0, and all pairs of factors."""

    def __init__(self, num_rows, dim):
        super().__init__()
        self.table = nn.Embedding(num_rows, dim + 1)
        self.bias = nn.Linear(1, 1)

    def forward(self, ids):
        """Logits as a column."""
        values = self.table(ids)
        factors = values[:, :, 1:]
        pairs = factors.sum(1).square().sum(1) - factors.square().sum((1, 2))
        bias = self.bias(values.new_zeros(len(ids), 1))
        return bias + (values[:, :, 0].sum(1) + pairs / 2).unsqueeze(1)


def main() -> None:
    warnings.simplefilter("ignore")
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["num_threads"])
    with np.load(task["data"]) as data:
        ids, labels = torch.from_numpy(data["ids"]), torch.from_numpy(data["labels"])
    if task["model"] == "mlp":
        model = Mlp(task["num_rows"], ids.shape[2], task["dim"], task["hidden"])
    else:
        model = FactorizationMachine(task["num_rows"], task["dim"])
    nn.init.normal_(model.table.weight, std=0.01)
    step = ghost_step(model, ids.shape[1], task["rate"], task["momentum"])
    for number, _ in enumerate(sys.stdin):
        start = time.perf_counter()
        step(ids[number % len(ids)], labels[number % len(ids)])
        print(time.perf_counter() - start, flush=True)
    with open("/proc/self/status", encoding="utf-8") as status:
        (peak,) = (int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"opacus": opacus.__version__, "torch": torch.__version__, "peak": peak}))


def ghost_step(model, batch_size, rate, momentum):
    wrapped = GradSampleModuleFastGradientClipping(
        model, batch_first=True, max_grad_norm=1.0, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(wrapped.parameters(), lr=rate, momentum=momentum),
        noise_multiplier=0.6,
        max_grad_norm=1.0,
        expected_batch_size=batch_size,
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.BCEWithLogitsLoss())

    def step(ids, labels):
        optimizer.zero_grad()
        loss(wrapped(ids), labels.unsqueeze(1)).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
