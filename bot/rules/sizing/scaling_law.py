"""Choose model size and training tokens for an amount of compute, by the Chinchilla scaling law as it was refitted.

    loss(N, D)   = floor + A / N^a + B / D^b        N parameters, D training tokens, loss in nats per token
    training     = 6 N D FLOPs
    lifetime     = 6 N D + 2 N T FLOPs              T tokens that are served after training (arXiv:2401.00448)

The form is that of Hoffmann et al. (arXiv:2203.15556), the coefficients are those of Besiroglu et al.
(arXiv:2404.10102), who found that the original fit contradicts its own data. Both fits rest on the same runs: models of
70M to 16B parameters on 5B to 500B tokens of web text, none of them repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: FLOPs of one parameter for one token: forward and backward, and forward alone.
TRAINING_FLOPS, SERVING_FLOPS = 6.0, 2.0
#: What the published runs reach over, in parameters and in tokens.
FITTED_PARAMS = (70e6, 16e9)
FITTED_TOKENS = (5e9, 500e9)
#: The deviation of the floor of the loss, which is known best of the five coefficients (arXiv:2404.10102, table 1).
FLOOR_SIGMA = 0.03
#: Golden section: so many steps narrow thirty powers of e to a billionth of one.
_STEPS = 52
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """Hold the five coefficients of the law."""

    floor: float
    params_scale: float
    params_exponent: float
    tokens_scale: float
    tokens_exponent: float

    def loss(self, params: float, tokens: float) -> float:
        """Return the expected loss in nats per token."""
        of_size = self.params_scale * math.pow(params, -self.params_exponent)
        return self.floor + of_size + self.tokens_scale * math.pow(tokens, -self.tokens_exponent)

    def tokens_for(self, params: float, loss: float) -> float:
        """Return the tokens on which a model of `params` reaches `loss`; infinite where it never does."""
        left = loss - self.floor - self.params_scale * math.pow(params, -self.params_exponent)
        # A model that only just cannot reach the loss needs more tokens than a float can hold.
        exponent = math.log(self.tokens_scale / left) / self.tokens_exponent if left > 0 else math.inf
        return math.exp(exponent) if exponent < 700 else math.inf


#: arXiv:2404.10102, table 1. With deviations: 1.8172 (0.03), 482.01 (124.58), 0.3478 (0.02), 2085.43 (1293.23), 0.3658
#: (0.02).
LAW = ScalingLaw(1.8172, 482.01, 0.3478, 2085.43, 0.3658)


@dataclass(frozen=True, slots=True)
class SizedRun:
    """Hold a model size and the tokens that it is trained on, with the loss that the law expects."""

    params: float
    tokens: float
    loss: float

    @property
    def training_flops(self) -> float:
        """Return the FLOPs of the training."""
        return TRAINING_FLOPS * self.params * self.tokens


def compute_optimum(flops: float, law: ScalingLaw = LAW) -> SizedRun:
    """Return the size and tokens of the least loss for so many FLOPs of training, in closed form. FLOPs above zero."""
    a, b = law.params_exponent, law.tokens_exponent
    scale = math.pow(a * law.params_scale / (b * law.tokens_scale), 1 / (a + b))
    params = scale * math.pow(flops / TRAINING_FLOPS, b / (a + b))
    tokens = flops / TRAINING_FLOPS / params
    return SizedRun(params, tokens, law.loss(params, tokens))


def lifetime_flops(run: SizedRun, served_tokens: float) -> float:
    """Return the FLOPs of training a model and of serving so many tokens with it."""
    return run.training_flops + SERVING_FLOPS * run.params * served_tokens


def lifetime_optimum(loss: float, served_tokens: float, law: ScalingLaw = LAW) -> SizedRun:
    """Return the size and tokens that reach `loss` with the least FLOPs of training and serving together.

    The more is served, the smaller the model and the longer its training. The loss must be above the law's floor.
    """
    # At the smallest size that reaches the loss with endless tokens, the cost is infinite; a larger one is searched.
    least = math.log(law.params_scale / (loss - law.floor)) / law.params_exponent

    def cost(size: float) -> float:
        params = math.exp(size)
        run = SizedRun(params, law.tokens_for(params, loss), loss)
        return math.log(lifetime_flops(run, served_tokens))

    params = math.exp(_minimum(cost, least + 1e-9, least + 30))
    return SizedRun(params, law.tokens_for(params, loss), loss)


def lifetime_compute_optimum(flops: float, served_tokens: float, law: ScalingLaw = LAW) -> SizedRun:
    """Return the size and tokens of the least loss where `flops` pay for training and for serving together."""
    if not served_tokens:
        return compute_optimum(flops, law)

    def loss(size: float) -> float:
        tokens = flops / TRAINING_FLOPS / math.exp(size) - served_tokens * SERVING_FLOPS / TRAINING_FLOPS
        return law.loss(math.exp(size), tokens) if tokens > 0 else math.inf

    # A larger model cannot even serve the tokens.
    most = math.log(flops / SERVING_FLOPS / served_tokens)
    params = math.exp(_minimum(loss, most - 30, most))
    tokens = flops / TRAINING_FLOPS / params - served_tokens * SERVING_FLOPS / TRAINING_FLOPS
    return SizedRun(params, tokens, law.loss(params, tokens))


def _minimum(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one minimum has it, by golden section."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = of(left), of(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = of(right)
    return (low + high) / 2


def beyond_fit(params: float, tokens: float) -> tuple[str, ...]:
    """Say where a run lies outside of what the law was fitted on, one sentence each."""
    found: list[str] = []
    if not FITTED_PARAMS[0] <= params <= FITTED_PARAMS[1]:
        where = "below" if params < FITTED_PARAMS[0] else "above"
        found.append(f"The size is {where} the 70M to 16B parameters that the law was fitted on.")
    if not FITTED_TOKENS[0] <= tokens <= FITTED_TOKENS[1]:
        where = "below" if tokens < FITTED_TOKENS[0] else "above"
        found.append(f"The tokens are {where} the 5B to 500B that the law was fitted on.")
    return tuple(found)
