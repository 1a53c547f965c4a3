"""The vocabulary that model files are written in: each word records operations of a step.

A model is run once over a `Step`; what it asks for becomes a program (see `worker.program`) that
is replayed for every batch. So a word describes work on all tokens of any step, and gives memory
that will hold the result; nothing is computed while a model is recorded.
"""

from collections.abc import Callable, Sequence

from kvpool import KVCache, LayerGroup, StateCache
from worker.kernels.attention import attention_task
from worker.kernels.attention_arguments import (
    AttentionScratch,
    AttentionSinks,
    attention_arguments,
    attention_scratch,
)
from worker.kernels.clamp_task import clamp_task
from worker.kernels.gated_activation import (
    Activation,
    activation_task,
    factors,
    gated_activation_task,
)
from worker.kernels.head_norm_task import head_norm_task
from worker.kernels.layer_norm_task import layer_norm_task
from worker.kernels.native import Native, address_of, real_word
from worker.kernels.norm_task import add_task, norm_task, quantize_task
from worker.kernels.rotate_and_write import rotate_and_write_arguments, rotate_and_write_task
from worker.kernels.sigmoid_gate_task import sigmoid_gate_task
from worker.program import Program
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .batch_memory import (
    FIRST_GROUP,
    GROUP_WORDS,
    LOGIT_ITEMS,
    LOGIT_ROWS,
    LOGITS_AN_ITEM,
    PAIR_ITEMS,
    PAIRS,
    PAIRS_AN_ITEM,
    TOKEN_ITEMS,
    TOKENS,
    TOKENS_AN_ITEM,
    BatchMemory,
    Capacity,
    attention_items_word,
    table_stride_word,
)
from .config import ExpertsConfig
from .embedding import Embedding
from .linear import Linear
from .norm import LayerNorm, Norm, RMSNorm
from .rotary import RotaryEmbedding
from .routing import Routing
from .rows import Rows, RowSet
from .workspace import Memory, Workspace


class Step:
    """A step while it is recorded.

    Attributes:
        memory: the batch at fixed places.
        program: what has been recorded.
        threads: of the team that will run it.
        tokens: rows that are the step's tokens.
        logit_rows: rows that are the tokens which get logits.
        pairs: rows that are the tokens' choices of experts, see `Routing`.
    """

    memory: BatchMemory
    program: Program
    threads: int
    tokens: RowSet
    logit_rows: RowSet
    pairs: RowSet

    def __init__(
        self,
        capacity: Capacity,
        kv: KVCache,
        groups: Sequence[LayerGroup],
        rotaries: Sequence[RotaryEmbedding],
        team: ThreadTeam,
        stages: Stages,
        experts: ExpertsConfig | None = None,
    ) -> None:
        used = 0 if experts is None else experts.used
        self.memory = BatchMemory(capacity, groups, used)
        self._routing = None if experts is None else Routing.with_room(experts, capacity.tokens)
        self._rotaries = rotaries
        self._first_rotary = FIRST_GROUP + GROUP_WORDS * len(groups)
        self.program = Program(team, stages, self._first_rotary + 2 * len(rotaries))
        self._scratch: dict[tuple[int, int, int], AttentionScratch] = {}
        self.threads = team.threads
        self._kv = kv
        self._team = team
        self._groups = groups
        self._workspace = Workspace()
        self.tokens = RowSet(capacity.tokens, TOKENS, TOKEN_ITEMS, TOKENS_AN_ITEM)
        self.logit_rows = RowSet(capacity.logit_rows, LOGIT_ROWS, LOGIT_ITEMS, LOGITS_AN_ITEM)
        self.pairs = RowSet(capacity.tokens * used, PAIRS, PAIR_ITEMS, PAIRS_AN_ITEM)

    @property
    def routing(self) -> Routing:
        """Which experts the tokens go to."""
        assert self._routing is not None, "the model has no experts"
        return self._routing

    @property
    def states(self) -> StateCache:
        """Recurrent states of the sequences."""
        assert self._kv.states is not None, "the model has no recurrent layers"
        return self._kv.states

    # Memory and operations, for the words below and for `Linear`.

    def floats(self, name: str, width: int, rows: RowSet | None = None) -> Memory:
        """Memory for float32 rows, by default one a token."""
        return self._workspace.floats(name, (rows or self.tokens).capacity, width)

    def records(self, name: str, width: int, rows: RowSet | None = None) -> Memory:
        """Memory for quantised rows, by default one a token."""
        return self._workspace.records(name, (rows or self.tokens).capacity, width)

    def by_rows(self, stage: str, task: Native, arguments: Sequence[int], rows: RowSet) -> None:
        """Record a task over runs of rows; its last two arguments say where their numbers are."""
        words = (*arguments, rows.count_word, rows.an_item_word)
        self.program.add_task(stage, task, words, items_word=rows.items_word)

    def count(self, rows: RowSet) -> int:
        """Number of rows in the step that is running; for Python calls."""
        return int(self.program.header[rows.count_word])

    def call_by_row(self, stage: str, call: Callable[[int], None], rows: RowSet) -> None:
        """Record a Python call for each row, shared by the team."""
        self.program.add_call(stage, lambda: self._team.run(call, self.count(rows)))

    # The words.

    def norm(self, norm: Norm, x: Memory) -> Rows:
        """Normalise the tokens' values; x is left as it is."""
        return self._normed("norm", norm, x, self.tokens, 0)

    def rows(self, x: Memory) -> Rows:
        """The tokens' values as they are."""
        return self._quantised_apart("plain", x, self.tokens)

    def norm_of_logit_rows(self, norm: Norm, x: Memory) -> Rows:
        """Normalise the values of those tokens that get logits."""
        return self._normed("last", norm, x, self.logit_rows, address_of(self.memory.logit_rows))

    def project(self, stage: str, linear: Linear, x: Rows) -> Memory:
        """Apply a projection."""
        out = self.floats(stage, linear.outputs, x.row_set)
        linear.record(self, stage, x, out, adds=False)
        return out

    def project_and_add(self, stage: str, linear: Linear, x: Rows, to: Memory) -> None:
        """Apply a projection and add the result to `to`."""
        linear.record(self, stage, x, to, adds=True)

    def gate(
        self, linear: Linear, x: Rows, activation: Activation, limit: float | None = None
    ) -> Rows:
        """Project to gate and up, and give activation(gate) * up.

        Args:
            linear: gate and up.
            x: the inputs.
            activation: of the gate.
            limit: clamps both, and adds 1 to up, see `kernels.clamp_task`; None for neither.
        """
        width = linear.outputs // 2
        if linear.can_gate and limit is None:
            records = self.records("gated", width)
            linear.record_gated(self, "ffn_gate_up", x, records, activation)
            return Rows(width, self.tokens, floats=_no_floats, records=lambda: records)
        gate_up = self.project("ffn_gate_up", linear, x)
        if limit is not None:
            words = (gate_up.address, gate_up.stride, width, real_word(limit))
            self.by_rows("activation", clamp_task, words, x.row_set)

        def record(out: Memory) -> None:
            self._activate(gated_activation_task, gate_up, out, activation, x.row_set)

        return self._rows("gated", width, record, x.row_set)

    def activate(self, x: Memory, activation: Activation) -> Rows:
        """Give activation(x)."""

        def record(out: Memory) -> None:
            self._activate(activation_task, x, out, activation, self.tokens)

        return self._rows("activated", x.width, record, self.tokens)

    def add(self, x: Memory, y: Memory, norm: RMSNorm | None = None, scale: float = 1.0) -> None:
        """Add scale * y to x; with a norm, y is normalised in place before."""
        weight = 0 if norm is None else address_of(norm.weight)
        numbers = (0.0 if norm is None else norm.eps), scale
        places = (x.address, x.stride, y.address, y.stride, x.width, weight)
        words = (*places, *map(real_word, numbers))
        self.by_rows("norm", add_task, words, self.tokens)

    def normalize_heads(self, norm: Norm, x: Memory, column: int, heads: int) -> None:
        """Normalise heads in place.

        Args:
            norm: over `width` values; one for all heads, or a weight for each.
            x: float32 rows.
            column: where the first head of a row begins.
            heads: how many lie side by side from there on.
        """
        *each, width = norm.weight.shape
        assert each in ([], [heads]), (norm.weight.shape, heads)
        assert column + heads * width <= x.width, (column, heads, width, x.width)
        assert isinstance(norm, RMSNorm) or norm.bias is None, "heads have norms without bias"
        words = (
            *(x.address + 4 * column, x.stride, heads, width),
            *(address_of(norm.weight), 4 * width if each else 0),
            *(int(isinstance(norm, LayerNorm)), real_word(norm.eps)),
        )
        self.by_rows("norm", head_norm_task, words, self.tokens)

    def rotate_and_write(
        self,
        layer: int,
        qkv: Memory,
        rotary: RotaryEmbedding | None,
        heads: int,
        query_norm: RMSNorm | None = None,
        key_norm: RMSNorm | None = None,
    ) -> None:
        """Rotate queries and keys in place, and put keys and values into the pool.

        Args:
            layer: index of the layer.
            qkv: float32 rows: query heads, key heads, value heads.
            rotary: the layer's rotary embedding; None for no rotation.
            heads: query heads.
            query_norm: normalises each query head before; None for no norm.
            key_norm: the same for key heads.
        """
        group, index = self._kv.layer(layer)
        words = rotate_and_write_arguments(
            qkv.array,
            self.memory.positions,
            self.memory.slots[group],
            self._kv.keys[group][index],
            self._kv.values[group][index],
            heads=heads,
            angles=0 if rotary is None else rotary.angles,
            distance=1 if rotary is None else rotary.distance,
            query_norm=None if query_norm is None else query_norm.weight,
            key_norm=None if key_norm is None else key_norm.weight,
            eps=0.0 if query_norm is None else query_norm.eps,
            tables_word=0 if rotary is None else self._tables_word(rotary),
            is_long=None if rotary is None or rotary.long is None else self.memory.is_long,
            tokens_word=TOKENS,
            tokens_an_item_word=TOKENS_AN_ITEM,
        )
        self.program.add_task("rope_kv_write", rotate_and_write_task, words, items_word=TOKEN_ITEMS)

    def attend(
        self,
        layer: int,
        qkv: Memory,
        width: int,
        scale: float,
        cap: float | None,
        sinks: AttentionSinks | None = None,
    ) -> Rows:
        """Attend from all tokens to the keys of their sequences, their own included.

        Args:
            layer: index of the layer.
            qkv: float32 rows, starting with the query heads.
            width: heads * head_dim of the queries.
            scale: factor on query-key products.
            cap: soft cap of the scaled products, None for none.
            sinks: scores without values, one a query head; None for none.
        """
        group, index = self._kv.layer(layer)
        layer_group, memory = self._groups[group], self.memory
        heads = width // layer_group.head_dim

        def record(out: Memory) -> None:
            words = attention_arguments(
                qkv.array,
                self._kv.keys[group][index],
                self._kv.values[group][index],
                out.array,
                memory.tables[group],
                memory.positions,
                memory.items[group],
                self._attention_scratch(heads, layer_group),
                heads=heads,
                table_stride_word=table_stride_word(group),
                window=layer_group.window,
                scale=scale,
                cap=cap,
                sinks=sinks,
            )
            items = attention_items_word(group)
            self.program.add_task("attention", attention_task, words, items_word=items)

        return self._rows("attention", width, record, self.tokens)

    def scale_by_sigmoid(self, x: Memory, gates: Memory, column: int) -> None:
        """Multiply x by the sigmoid of as many columns of `gates` from `column` on, in place."""
        assert column + x.width <= gates.width, (column, x.width, gates.width)
        words = (x.address, x.stride, gates.address + 4 * column, gates.stride, x.width)
        self.by_rows("attention", sigmoid_gate_task, words, self.tokens)

    def embed(self, embedding: Embedding) -> Memory:
        """The tokens' embeddings."""
        x = self.floats("x", embedding.width)

        def look_up() -> None:
            tokens = self.count(self.tokens)
            embedding(self.memory.token_ids[:tokens], x.array[:tokens])

        self.program.add_call("embedding", look_up)
        return x

    def add_positions(self, x: Memory, embedding: Embedding) -> None:
        """Add the embeddings of the tokens' positions to x."""
        found = self.floats("positions", embedding.width)

        def add() -> None:
            tokens = self.count(self.tokens)
            x.array[:tokens] += embedding(self.memory.positions[:tokens], found.array[:tokens])

        self.program.add_call("embedding", add)

    def point_at_tables(self) -> None:
        """Write into the header where the tables of the rotary embeddings are now."""
        for i, rotary in enumerate(self._rotaries):
            word = self._first_rotary + 2 * i
            self.program.header[word : word + 2] = address_of(rotary.cos), address_of(rotary.sin)

    def _tables_word(self, rotary: RotaryEmbedding) -> int:
        return self._first_rotary + 2 * self._rotaries.index(rotary)

    def _attention_scratch(self, heads: int, group: LayerGroup) -> AttentionScratch:
        key = heads, group.num_kv_heads, group.head_dim
        if key not in self._scratch:
            self._scratch[key] = attention_scratch(self.threads, *key)
        return self._scratch[key]

    def computed_rows(self, name: str, width: int, record: Callable[[Memory], None]) -> Rows:
        """Rows of the tokens that `record` computes as float32."""
        return self._rows(name, width, record, self.tokens)

    def _rows(self, name: str, width: int, record: Callable[[Memory], None], rows: RowSet) -> Rows:
        """Rows that are computed as float32, and quantised by a task of their own."""
        out = self.floats(name, width, rows)
        record(out)
        return self._quantised_apart(name, out, rows)

    def _quantised_apart(self, name: str, x: Memory, rows: RowSet) -> Rows:
        """Rows that are there as float32; quantised by a task of their own, if at all."""

        def records() -> Memory:
            made = self.records(name, x.width, rows)
            words = (x.address, x.stride, x.width, made.address, made.stride)
            self.by_rows("quantise", quantize_task, words, rows)
            return made

        return Rows(x.width, rows, floats=lambda: x, records=records)

    def _activate(
        self, task: Native, x: Memory, out: Memory, activation: Activation, rows: RowSet
    ) -> None:
        linear, cubic = map(real_word, factors(activation))
        words = (x.address, x.stride, out.address, out.stride, out.width)
        self.by_rows("activation", task, (*words, linear, cubic), rows)

    def _normed(self, name: str, norm: Norm, x: Memory, rows: RowSet, index: int) -> Rows:
        out, width = self.floats(name, x.width, rows), x.width

        def record(records: Memory | None) -> None:
            place = (0, 0) if records is None else (records.address, records.stride)
            task = norm_task if isinstance(norm, RMSNorm) else layer_norm_task
            words = (
                *(x.address, x.stride, index, *_norm_words(norm), width),
                *(real_word(norm.eps), out.address, out.stride, *place),
            )
            self.by_rows("norm", task, words, rows)

        def floats() -> Memory:
            record(None)
            return out

        def records() -> Memory:
            made = self.records(name, width, rows)
            record(made)
            return made

        return Rows(width, rows, floats=floats, records=records)


def _norm_words(norm: Norm) -> tuple[int, ...]:
    """Where a norm's weight is, and its bias if its kind has one."""
    if isinstance(norm, RMSNorm):
        return (address_of(norm.weight),)
    return address_of(norm.weight), 0 if norm.bias is None else address_of(norm.bias)


def _no_floats() -> Memory:
    raise AssertionError(
        "gated rows exist quantised only: the projection behind them is not packed"
    )
