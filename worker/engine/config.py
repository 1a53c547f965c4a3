"""Engine settings: everything that holds for all rows and does not depend on the model."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kvpool import KVDtype

PositiveInt = Annotated[int, Field(ge=1)]

_KV_DTYPES: Mapping[str, KVDtype] = {"int8": "float16", "f32": "float32"}


class EngineConfig(BaseModel):
    """Settings of one engine. Unknown names are errors; nothing is changed after construction.

    Fields that can change a row's result: compute, matmul and kv_dtype (by roundings, they are
    part of the numerics identity), max_model_len, the KV pool's size and block_size (only whether
    a row fits at all), tokenizer_pre, parse_special, chat_template, chat_template_kwargs,
    chat_template_date, job_seed.
    All others change speed and memory alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    compute: Literal["int8", "f32"] = Field(
        default="int8",
        description="int8: integer kernels on the weights as the file quantises them, activations "
        "rounded to 8 bits in groups of 32. f32: weights as float32 copies, several times slower.",
    )
    matmul: Literal["blas", "compiled"] = Field(
        default="blas",
        description="Matrix products of f32. blas: the library behind NumPy (Accelerate on "
        "macOS), which differs between kinds of machines. compiled: tokenmill's own kernel, "
        "slower, with the same results on every machine.",
    )
    threads: PositiveInt | None = Field(
        default=None,
        description="Threads this engine computes with. None: all cores this process may use, by "
        "its affinity and its container's limit; with several workers on a machine give each its "
        "share, or they get in each other's way.",
    )
    max_model_len: PositiveInt | None = Field(
        default=None,
        description="Most tokens of a row, prompt and completion together. None: the model's "
        "context. A lower value bounds the memory a single long row can take; a prompt that "
        "leaves no room for one token is a row error.",
    )
    max_num_seqs: PositiveInt = Field(
        default=32,
        description="Most rows decoded at the same time. More rows raise throughput until the "
        "cores are busy, and take more KV blocks.",
    )
    max_num_batched_tokens: PositiveInt = Field(
        default=512,
        description="Most tokens a step computes, over all rows. Long prompts are cut into chunks "
        "of at most this size; lower values shorten a step and so the wait between two tokens "
        "of a row, higher ones prefill faster. At least max_num_seqs.",
    )
    block_size: PositiveInt = Field(
        default=16,
        description="Tokens a KV block. Smaller blocks waste less at the end of a row and cost "
        "more bookkeeping; attention is fastest with multiples of 16.",
    )
    kv_dtype: KVDtype | None = Field(
        default=None,
        description="Numbers in the KV pool. float16 takes half the memory of float32 and is "
        "faster with long rows; keys and values are rounded to it, and one above 65504 makes its "
        "row an error. None: float16 in int8 mode, float32 in f32 mode.",
    )
    kv_pool_bytes: PositiveInt | None = Field(
        default=None,
        description="Bytes of the KV pool. None: what max_num_seqs rows of full length can use, "
        "at most 1 GiB. When the pool is full the newest row waits and is computed again later; "
        "a row that cannot fit alone is a row error. At most one of kv_pool_bytes, kv_pool_tokens "
        "and kv_pool_share is given.",
    )
    kv_pool_tokens: PositiveInt | None = Field(
        default=None,
        description="The KV pool's size in tokens instead of bytes, rounded up to whole blocks.",
    )
    kv_pool_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="The KV pool's size as a share, up to 1, of the memory that is free when the "
        "engine starts (a container's limit counts), and no more than max_num_seqs rows of full "
        "length can use. It must hold a row of max_model_len tokens, so that it does not depend on "
        "the machine whether a row fits. Several workers on a machine need a share each.",
    )
    prefix_caching: bool = Field(
        default=True,
        description="Keep the keys and values of full KV blocks, those of finished rows as long as "
        "there is room, and share them with rows that begin with the same tokens. No token "
        "changes.",
    )
    deduplicate: bool = Field(
        default=True,
        description="Compute rows that are in the engine at the same time only once when their "
        "tokens and sampling parameters are equal and temperature is 0. No token changes.",
    )
    dequant_cache_bytes: PositiveInt | None = Field(
        default=None,
        description="Most bytes of dequantised weights kept in memory: layers and output head "
        "(also where it is the embedding; embeddings of tokens are read from the file). None: "
        "all of them. Less memory means dequantising again in every step.",
    )
    dequant_cache_layers: PositiveInt | None = Field(
        default=None,
        description="Most layers whose dequantised weights are kept, at least 2. None: all that "
        "dequant_cache_bytes allows.",
    )
    tokenizer_pre: str | None = Field(
        default=None,
        description="Name of the pre-tokenizer (tokenizer.ggml.pre) in place of the file's, for a "
        "model with a name that tokenmill does not know. The wrong one makes other tokens of the "
        "same text, and a worse model. docs/tokenizers.md lists the names.",
    )
    parse_special: bool = Field(
        default=False,
        description="Make control tokens (<|im_end|> and the like) of their spelling in prompts "
        "and messages. For texts that you wrote yourself: whoever else wrote one can end its turn "
        "and speak as the system.",
    )
    chat_template: str | None = Field(
        default=None,
        description="The chat template to use instead of the model file's own: Jinja source, a "
        "path that ends in .jinja, the name of another template of the file (tool_use, rag), or "
        "of a built-in one (chatml, llama3, ...; docs/tokenizers.md lists them).",
    )
    chat_template_kwargs: Mapping[str, Any] = Field(
        default_factory=dict,
        description="Further variables for the chat template, for example enable_thinking.",
    )
    chat_template_date: datetime | None = Field(
        default=None,
        strict=False,
        description="The date a chat template sees (strftime_now). None: the time the engine "
        "starts; a job sets it, so that all its rows see the same date.",
    )
    job_seed: Annotated[int, Field(ge=0, lt=2**64)] = Field(
        default=0,
        description="With the row id it seeds the rows that have no seed of their own.",
    )

    @property
    def kv_cache_dtype(self) -> KVDtype:
        """Numbers in the KV pool: kv_dtype, or what belongs to the compute mode."""
        return self.kv_dtype or _KV_DTYPES[self.compute]

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is less than max_num_seqs "
                f"{self.max_num_seqs}: every running row computes at least one token a step; "
                "raise max_num_batched_tokens or lower max_num_seqs"
            )
        sizes = ("kv_pool_bytes", "kv_pool_tokens", "kv_pool_share")
        given = [name for name in sizes if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} all set the pool's size; give one")
        return self
