"""What the layers of a model share during one step."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kvpool import KVCache, LayerGroup
from worker.kernels.attention import QUERY_TILE, attention
from worker.kernels.gated_activation import Activation, gated_activation
from worker.kernels.kv_write import kv_write
from worker.linear import Linear
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .batch import Batch
from .rotary import RotaryEmbedding
from .workspace import Workspace

# Tokens that one thread takes at a time through kernels that treat each token by itself.
_ROWS_AN_ITEM = 32
_CHUNKS_A_THREAD = 4


class Step:
    """A batch on its way through the layers: its scratch memory, K/V, threads and stages.

    T tokens, of S sequences. Arrays that its methods give out live in scratch memory and are
    overwritten when the next layer asks for the same.

    Attributes:
        batch: the tokens.
        workspace: scratch memory.
        stages: stage records.
    """

    batch: Batch
    workspace: Workspace
    stages: Stages

    def __init__(
        self,
        batch: Batch,
        kv: KVCache,
        groups: Sequence[LayerGroup],
        workspace: Workspace,
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        self.batch = batch
        self.workspace = workspace
        self.stages = stages
        self._kv = kv
        self._groups = groups
        self._team = team
        self._items = [work_items(batch.query_start, group.num_kv_heads) for group in groups]

    def array(self, name: str, columns: int) -> NDArray[np.float32]:
        """Scratch memory for all tokens: float32 [T, columns]."""
        return self.workspace.array(name, self.batch.num_tokens, columns)

    def project(self, stage: str, linear: Linear, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply a projection to x [T, inputs]: float32 [T, outputs]."""
        with self.stages.stage(stage) as record:
            out = self.array(stage, linear.outputs)
            linear(x, out)
            record.output(out)
        return out

    def rotate(
        self, rotary: RotaryEmbedding, x: NDArray[np.float32], heads: int, head_dim: int
    ) -> None:
        """Rotate the leading heads of x [T, columns] by the positions of the tokens, in place."""
        with self.stages.stage("rope") as record:
            self.over_tokens(
                lambda rows: rotary.rotate(x[rows], self.batch.positions[rows], heads, head_dim)
            )
            record.output(x)

    def write_kv(self, layer: int, qkv: NDArray[np.float32]) -> None:
        """Put keys and values of all tokens, the last columns of qkv, into the layer's pool."""
        with self.stages.stage("kv_write") as record:
            group, index = self._kv.layer(layer)
            keys, values = self._kv.keys[group][index], self._kv.values[group][index]
            kv_write(qkv, keys, values, self.batch.slots[group])
            record.output(keys)

    def attend(
        self, layer: int, qkv: NDArray[np.float32], width: int, scale: float, cap: float | None
    ) -> NDArray[np.float32]:
        """Attend from all tokens to the keys of their sequences, their own included.

        Args:
            layer: index of the layer.
            qkv: [T, columns] float32, starting with the query heads.
            width: heads * head_dim of the queries.
            scale: factor on query-key products.
            cap: soft cap of the scaled products, None for none.

        Returns:
            float32 [T, heads * head_dim].
        """
        group, index = self._kv.layer(layer)
        keys, values = self._kv.keys[group][index], self._kv.values[group][index]
        table, window = self.batch.block_tables[group], self._groups[group].window
        items, positions = self._items[group], self.batch.positions
        chunks = min(len(items), _CHUNKS_A_THREAD * self._team.threads)
        out = self.array("attention", width)

        def attend_chunk(chunk: int) -> None:
            part = items[len(items) * chunk // chunks : len(items) * (chunk + 1) // chunks]
            attention(qkv, keys, values, out, table, positions, part, window, scale, cap)

        with self.stages.stage("attention") as record:
            self._team.run(attend_chunk, chunks)
            record.output(out)
        return out

    def gate(self, gate_up: NDArray[np.float32], activation: Activation) -> NDArray[np.float32]:
        """Apply activation(gate) * up to [T, 2 * width], gate first: float32 [T, width]."""
        with self.stages.stage("activation") as record:
            out = self.array("activation", gate_up.shape[1] // 2)
            self.over_tokens(lambda rows: gated_activation(gate_up[rows], out[rows], activation))
            record.output(out)
        return out

    def over_tokens(self, work: Callable[[slice], None]) -> None:
        """Call `work` on slices that cover all tokens, on the team if there are many."""
        tokens = self.batch.num_tokens
        if tokens <= _ROWS_AN_ITEM:
            work(slice(0, tokens))
            return

        def part(item: int) -> None:
            work(slice(item * _ROWS_AN_ITEM, min((item + 1) * _ROWS_AN_ITEM, tokens)))

        self._team.run(part, -(-tokens // _ROWS_AN_ITEM))


def work_items(query_start: NDArray[np.int32], num_kv_heads: int) -> NDArray[np.int32]:
    """Cut attention into work items: int32 [items, 4] of sequence, K/V head, first token, end.

    The last queries of a sequence come first: they see the most keys, and long items at the end
    would leave threads idle.

    Args:
        query_start: int32 [S + 1], see `Batch`.
        num_kv_heads: K/V heads of the layers.
    """
    starts = query_start.tolist()
    tiles = [
        (sequence, first, min(first + QUERY_TILE, end))
        for sequence, (start, end) in enumerate(pairwise(starts))
        for first in range(start, end, QUERY_TILE)
    ]
    items = [(s, head, first, end) for s, first, end in tiles for head in range(num_kv_heads)]
    return np.array(items[::-1], np.int32)
