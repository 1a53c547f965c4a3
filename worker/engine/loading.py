"""From a model file to the parts of an engine."""

from dataclasses import dataclass
from pathlib import Path

from worker.available_cores import available_cores
from worker.compute_config import ComputeConfig
from worker.models.model import Model
from worker.models.registry import load_model
from worker.open_model import open_model
from worker.stages import Stages
from worker.thread_team import ThreadTeam
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import Tokenizer

from .config import EngineConfig
from .prompting import prompt_encoder


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and what belongs to it.

    Attributes:
        model: the model.
        tokenizer: its tokenizer.
        encoder: makes prompts into its token ids.
        team: the threads it computes with.
        stages: where its time goes, when recorded.
    """

    model: Model
    tokenizer: Tokenizer
    encoder: PromptEncoder
    team: ThreadTeam
    stages: Stages


def load(path: Path, config: EngineConfig) -> LoadedModel:
    """Open a model and get everything ready that does not depend on the KV pool.

    Raises:
        ModelError: the file cannot be used.
        EngineConfigError: a setting cannot work with it.
    """
    gguf = open_model(path)
    tokenizer, encoder = prompt_encoder(gguf, config)
    compute = ComputeConfig(
        mode=config.compute,
        matmul=config.matmul,
        dequant_cache_bytes=config.dequant_cache_bytes,
        dequant_cache_layers=config.dequant_cache_layers,
    )
    team, stages = ThreadTeam(config.threads or available_cores()), Stages()
    model = load_model(gguf, compute, team=team, stages=stages)
    return LoadedModel(model, tokenizer, encoder, team, stages)
