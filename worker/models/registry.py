"""Which architectures tokenmill can run, and how each is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from worker.compute_config import ComputeConfig
from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import ModelFile
from worker.gguf.wording import shown
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .config import ModelConfig
from .gemma2 import gemma2_config, load_gemma2
from .gemma3 import gemma3_config, load_gemma3
from .gpt2 import gpt2_config, load_gpt2
from .gpt_oss import gpt_oss_config, load_gpt_oss
from .granite import granite_config, load_granite
from .key_reader import KeyReader
from .llama import llama_config, load_llama
from .loader import Loader
from .model import Model
from .olmo2 import load_olmo2, olmo2_config
from .phi3 import load_phi3, phi3_config
from .qwen2 import load_qwen2, qwen2_config
from .qwen3 import load_qwen3, qwen3_config
from .qwen3moe import load_qwen3moe, qwen3moe_config
from .qwen35 import load_qwen35, qwen35_config
from .smollm3 import load_smollm3, smollm3_config
from .stablelm import load_stablelm, stablelm_config
from .starcoder2 import load_starcoder2, starcoder2_config


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the files of an architecture are read.

    Attributes:
        config: reads the hyperparameters, from the keys given and from the file's tensors.
        load: builds the model of a loader that has them.
    """

    config: Callable[[ModelFile, KeyReader], ModelConfig]
    load: Callable[[Loader], Model]


SUPPORTED_ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "gemma2": Architecture(gemma2_config, load_gemma2),
        "gemma3": Architecture(gemma3_config, load_gemma3),
        "gpt2": Architecture(gpt2_config, load_gpt2),
        "gpt-oss": Architecture(gpt_oss_config, load_gpt_oss),
        "granite": Architecture(granite_config, load_granite),
        "llama": Architecture(llama_config, load_llama),
        "olmo2": Architecture(olmo2_config, load_olmo2),
        "phi3": Architecture(phi3_config, load_phi3),
        "qwen2": Architecture(qwen2_config, load_qwen2),
        "qwen3": Architecture(qwen3_config, load_qwen3),
        "qwen35": Architecture(qwen35_config, load_qwen35),
        "qwen3moe": Architecture(qwen3moe_config, load_qwen3moe),
        "smollm3": Architecture(smollm3_config, load_smollm3),
        "stablelm": Architecture(stablelm_config, load_stablelm),
        "starcoder2": Architecture(starcoder2_config, load_starcoder2),
    }
)


def model_config(gguf: ModelFile) -> ModelConfig:
    """Read and check a model's hyperparameters.

    Raises:
        UnsupportedModelError: the architecture, or a variant of it, is not supported.
        GGUFError: a key is missing or cannot be right.
    """
    keys = KeyReader(gguf.metadata)
    config = _architecture(gguf).config(gguf, keys)
    keys.finish()
    return config


def load_model(
    gguf: ModelFile, compute: ComputeConfig, *, team: ThreadTeam, stages: Stages
) -> Model:
    """Build a model; weights are dequantised when the first step asks for them.

    Args:
        gguf: the open file; it must stay open as long as the model is used.
        compute: how weights are kept and multiplied.
        team: threads to compute with.
        stages: where stages are recorded.

    Raises:
        UnsupportedModelError: the architecture, a variant of it or a tensor is not supported.
        GGUFError: a key or tensor is missing or cannot be right.
        EngineConfigError: the dequant cache's bounds are too small.
    """
    loader = Loader(gguf, model_config(gguf), compute, team, stages)
    return _architecture(gguf).load(loader)


def _architecture(gguf: ModelFile) -> Architecture:
    if not gguf.tensors:
        raise GGUFError(
            f"{gguf.path}: the file holds no tensors, only metadata such as a vocabulary; take the "
            "model itself"
        )
    name = gguf.metadata.text("general.architecture")
    if name not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModelError(
            f"{gguf.path}: general.architecture is '{shown(name)}', which tokenmill cannot run; "
            f"supported: {', '.join(sorted(SUPPORTED_ARCHITECTURES))}"
        )
    return SUPPORTED_ARCHITECTURES[name]
