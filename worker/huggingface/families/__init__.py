"""The checkpoints that can be read, a table each."""

from .gemma import GEMMA2, GEMMA3
from .gpt2 import GPT2
from .gpt_oss import GPT_OSS
from .granite import GRANITE
from .llama import LLAMA, MISTRAL
from .mixture import MIXTRAL, QWEN3_MOE
from .olmo import OLMO2
from .phi import PHI3
from .qwen import QWEN2, QWEN3
from .qwen35 import QWEN35
from .smollm3 import SMOLLM3
from .stablelm import STABLELM
from .starcoder import STARCODER2

FAMILIES = (
    *(GEMMA2, GEMMA3, GPT2, GRANITE, LLAMA, MISTRAL, MIXTRAL, OLMO2, PHI3, QWEN2, QWEN3),
    *(QWEN3_MOE, GPT_OSS, QWEN35, SMOLLM3, STABLELM, STARCODER2),
)
"""All families."""
