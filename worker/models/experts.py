"""A mixture of experts (Shazeer et al., 2017): feed-forward layers of which each token uses a few.

Which experts a token goes to, what each gives for it, and the order in which that is added up
follow from the token alone, not from the others of the step.
"""

from worker.kernels.gated_activation import Activation
from worker.kernels.native import address_of, real_word
from worker.kernels.pair_task import combine_task, send_task
from worker.kernels.route_task import group_task, route_task

from .batch_memory import ACTIVE_EXPERTS, PAIRS
from .loader import Biases, Loader
from .rows import Rows
from .step import Step
from .workspace import Memory


class MixtureOfExperts:
    """Router and gated experts of a layer."""

    def __init__(
        self,
        loader: Loader,
        layer: int,
        activation: Activation = "silu",
        biases: Biases = "no biases",
        limit: float | None = None,
    ) -> None:
        """Ask for the projections.

        Args:
            loader: of the model's file.
            layer: index of the layer.
            activation: of the gate.
            biases: whether router and experts have some.
            limit: clamps gate and up, see `Step.gate`.
        """
        self.router = loader.router(layer, biases)
        self.gate_up = loader.expert_gate_up(layer, biases)
        self.down = loader.expert_down(layer, biases)
        self.activation, self.limit = activation, limit

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        route(step.project("router", self.router, x), step)  # [T, experts]
        rows = sent(x, step)  # [T * K, hidden_size]
        gated = step.gate(self.gate_up, rows, self.activation, self.limit)
        combine(step.project("ffn_down", self.down, gated), step, to)  # [T * K, hidden_size]


def route(logits: Memory, step: Step) -> None:
    """Record which experts the tokens go to."""
    routing = step.routing
    words = (
        *(logits.address, logits.stride, routing.config.count, routing.config.used),
        *(int(routing.config.is_share_of_all), real_word(routing.config.scale)),
        *(address_of(routing.chosen), address_of(routing.weights)),
    )
    step.by_rows("router", route_task, words, step.tokens)
    grouped = (routing.starts, routing.active, routing.places, routing.sources)
    step.program.add_task(
        "router",
        group_task,
        (
            *(address_of(routing.chosen), routing.config.count, routing.config.used),
            *(*map(address_of, grouped), PAIRS, ACTIVE_EXPERTS),
        ),
    )


def sent(x: Rows, step: Step) -> Rows:
    """The tokens' values, once for each of their experts, by place."""

    def send(source: Memory, target: Memory) -> Memory:
        places = address_of(step.routing.sources)
        words = (source.address, source.stride, target.address, target.stride, places)
        step.by_rows("router", send_task, words, step.pairs)
        return target

    return Rows(
        x.width,
        step.pairs,
        floats=lambda: send(x.floats, step.floats("sent", x.width, step.pairs)),
        records=lambda: send(x.records, step.records("sent", x.width, step.pairs)),
    )


def combine(y: Memory, step: Step, to: Memory) -> None:
    """Record the weighted sums of what the experts gave, added to `to`."""
    routing = step.routing
    words = (
        *(y.address, y.stride, to.address, to.stride, y.width, routing.config.used),
        *(address_of(routing.places), address_of(routing.weights)),
    )
    step.by_rows("ffn_down", combine_task, words, step.tokens)
