"""Routing of a mixture of experts (Shazeer et al., 2017) as tasks of a step.

`route_task` chooses each token's experts and their weights. A *pair* is a token and one of its
experts; pair p is the choice of rank p % k of token p // k. `group_task` puts the pairs in the
order of their experts, so that an expert's tokens stand side by side.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .memory import put_word
from .native import float32s, int32s, real, task, word
from .vector import exp8, load8, load_part, splat8, store8, store_part, sub8

# Arguments of `route_task`, in this order.
(
    LOGITS,
    LOGITS_STRIDE,
    EXPERTS,
    USED,
    IS_SHARE_OF_ALL,
    SCALE,
    CHOSEN,
    WEIGHTS,
    ROWS_WORD,
    ROWS_AN_ITEM_WORD,
) = range(10)


@task
def route_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Choose the experts of a run of tokens.

    Arguments: logits (float32 rows, overwritten) and their stride in bytes; experts; experts of a
    token; whether weights are shares of the softmax over all experts, else over the chosen ones;
    factor on the weights; int32 [tokens, used], the chosen experts, the largest logit first;
    float32 [tokens, used], their weights; header words with the number of tokens and the tokens of
    an item.
    """
    experts, used = word(arguments, EXPERTS), word(arguments, USED)
    run = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    end = min((item + 1) * run, word(header, word(arguments, ROWS_WORD)))
    for token in range(item * run, end):
        place = word(arguments, LOGITS) + token * word(arguments, LOGITS_STRIDE)
        logits = float32s(place, experts)
        chosen = int32s(word(arguments, CHOSEN) + 4 * token * used, used)
        weights = float32s(word(arguments, WEIGHTS) + 4 * token * used, used)
        choose(logits, chosen)
        weigh(logits, chosen, weights, word(arguments, IS_SHARE_OF_ALL), real(arguments, SCALE))


@kernel
def choose(logits: NDArray[np.float32], chosen: NDArray[np.int32]) -> None:
    """Write the indices of the largest logits, in order; of equal ones the lower index first."""
    count = 0
    for expert in range(logits.size):
        if count < chosen.size:
            place, count = count, count + 1
        elif logits[expert] > logits[chosen[count - 1]]:
            place = count - 1
        else:
            continue
        while place > 0 and logits[expert] > logits[chosen[place - 1]]:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = expert


@kernel
def weigh(
    logits: NDArray[np.float32],
    chosen: NDArray[np.int32],
    weights: NDArray[np.float32],
    is_share_of_all: int,
    scale: np.float32,
) -> None:
    """Write the softmax of the chosen logits, times `scale`; all NaN if a logit is not finite.

    Where weights are shares of all, the logits are overwritten.
    """
    nothing = np.float32(0.0)
    for i in range(logits.size):
        nothing += logits[i] * np.float32(0.0)
    largest = logits[chosen[0]]
    for i in range(chosen.size):
        weights[i] = logits[chosen[i]]
    total = _powers(weights, largest)
    if is_share_of_all != 0:
        total = _powers(logits, largest)
    share = scale / total + nothing
    for i in range(chosen.size):
        weights[i] *= share


@kernel
def _powers(x: NDArray[np.float32], largest: np.float32) -> Any:
    """Replace x by e^(x - largest), and give the sum, in order."""
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(x, i, exp8(sub8(load8(x, i), splat8(largest))))
    if whole < x.size:
        rest = x.size - whole
        store_part(x, whole, rest, exp8(sub8(load_part(x, whole, rest), splat8(largest))))
    total = np.float32(0.0)
    for i in range(x.size):
        total += x[i]
    return total


# Arguments of `group_task`, in this order.
(
    G_CHOSEN,
    G_EXPERTS,
    G_USED,
    G_STARTS,
    G_ACTIVE,
    G_PLACES,
    G_SOURCES,
    G_PAIRS_WORD,
    G_ACTIVE_WORD,
) = range(9)


@task
def group_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Put all pairs in the order of their experts; those of an expert keep their order.

    Arguments: int32 [pairs], the expert of each; experts; experts of a token; int32 [experts + 1],
    the first place of each expert; int32 [experts], those that were chosen, in order; int32
    [pairs], the place of each pair; int32 [pairs], the token of each place; header word with the
    number of pairs; header word that receives the number of experts that were chosen.
    """
    pairs, experts = word(header, word(arguments, G_PAIRS_WORD)), word(arguments, G_EXPERTS)
    active = group(
        int32s(word(arguments, G_CHOSEN), pairs),
        word(arguments, G_USED),
        int32s(word(arguments, G_STARTS), experts + 1),
        int32s(word(arguments, G_ACTIVE), experts),
        int32s(word(arguments, G_PLACES), pairs),
        int32s(word(arguments, G_SOURCES), pairs),
    )
    put_word(header, word(arguments, G_ACTIVE_WORD), active)


@kernel
def group(
    chosen: NDArray[np.int32],
    used: int,
    starts: NDArray[np.int32],
    active: NDArray[np.int32],
    places: NDArray[np.int32],
    sources: NDArray[np.int32],
) -> int:
    """Sort by counting, see `group_task`; gives the number of experts that were chosen."""
    experts = active.size
    for expert in range(experts + 1):
        starts[expert] = 0
    for pair in range(chosen.size):
        starts[chosen[pair] + 1] += 1
    count = 0
    for expert in range(experts):
        if starts[expert + 1] > 0:
            active[count] = expert
            count += 1
        starts[expert + 1] += starts[expert]
    # Each start moves on to the next expert's, and back afterwards.
    for pair in range(chosen.size):
        place = starts[chosen[pair]]
        starts[chosen[pair]] += 1
        places[pair] = place
        sources[place] = pair // used
    for expert in range(experts, 0, -1):
        starts[expert] = starts[expert - 1]
    starts[0] = 0
    return count
