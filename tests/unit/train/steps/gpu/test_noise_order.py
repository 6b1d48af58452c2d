"""The update of a step waits for the noise that is drawn beside it. Needs a GPU."""

import pytest
import torch
from torch import Tensor

from tulle.train.steps.gpu.device_step import LayerParameters
from unit.train.steps.gpu.test_recorded_steps import GPU, RATES, engine_on, flat

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

_CYCLES = 20_000_000


def test_noise_that_is_drawn_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, in_time = engine_on(GPU, "logistic regression")
    engine.take(RATES[:8])
    draw_noise = LayerParameters.draw_noise

    def late(self: LayerParameters, draw: Tensor) -> None:
        torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
        draw_noise(self, draw)

    monkeypatch.setattr(LayerParameters, "draw_noise", late)
    engine, delayed = engine_on(GPU, "logistic regression")
    engine.take(RATES[:8])
    for (name, values), others in zip(
        in_time.parameters.items(), delayed.parameters.values(), strict=True
    ):
        if name not in in_time.tables:
            assert torch.allclose(flat({name: values}), flat({name: others}), atol=1e-5), name
