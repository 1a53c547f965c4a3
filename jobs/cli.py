"""The ``tokenmill`` command. Each verb imports what it needs when it runs, so help is quick."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from . import options as opt
from .failure import one_line_failures
from .interruption import INTERRUPTION
from .optional_values import with_one_value
from .process import run_process

RETRY_ERRORS = "--retry-errors"


class Verb(TyperCommand):
    """A command whose every failure ends in one line and its exit code, Ctrl-C included."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as Typer declares it
        """Run the verb."""
        with one_line_failures():
            return super().invoke(ctx)


app = typer.Typer(
    name="tokenmill",
    help="Offline batch LLM inference: Parquet prompts in, Parquet completions out, "
    "GGUF models on the CPU, scheduled by Ray.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than all the rest
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Be the process of the command line, by default with its own arguments; does not return."""
    # Python looks for garbage after every 700 new objects: a tenth of the time to import what we
    # need, in which there is none.
    gc.set_threshold(100_000, 20, 20)
    run_process(lambda: app(arguments, prog_name="tokenmill"))


def _version(wanted: bool) -> None:
    if wanted:
        from cluster.version import VERSION

        print(f"tokenmill {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""


class RunVerb(Verb):
    """``run``, whose option ``--retry-errors`` may have values or none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as Typer's
        """Parse the command line."""
        return super().parse_args(ctx, with_one_value(RETRY_ERRORS, args))


@app.command(cls=RunVerb)
def run(
    config: Annotated[Path, typer.Argument(help="A YAML file; docs/options.md lists its keys.")],
    model: Annotated[str | None, typer.Option(help="Overrides the key model.")] = None,
    input_: Annotated[str | None, typer.Option("--input", help="Overrides the key input.")] = None,
    output: Annotated[str | None, typer.Option(help="Overrides the key output.")] = None,
    workers: Annotated[int | None, typer.Option(help="Overrides the key cluster.workers.")] = None,
    threads: opt.Threads = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the key engine.job_seed.")] = None,
    retry_errors: Annotated[
        str | None,
        typer.Option(
            RETRY_ERRORS,
            metavar="[KIND ...]",
            help="Do rows in error again, of all kinds or of those named here (input, "
            "sampling_params, template, too_long, numbers, worker).",
        ),
    ] = None,
    settings: opt.Settings = None,
) -> None:
    """Run a job: every row of a Parquet dataset through the model, once."""
    from .config import load_config

    flags = {
        "model": model,
        "input": input_,
        "output": output,
        "cluster.workers": workers,
        "engine.threads": threads,
        "engine.job_seed": seed,
    }
    job = load_config(config, opt.given(**flags), settings or ())
    from .run import run_job  # imports Ray: only now that the configuration is sound

    INTERRUPTION.check()
    run_job(job, None if retry_errors is None else retry_errors.split())


@app.command(cls=Verb, context_settings={"allow_interspersed_args": False})
def submit(
    entrypoint: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND", help="What the job runs on the head.", min=1),
    ],
    working_dir: Annotated[Path, typer.Option(help="The folder to upload.")] = Path(),
    runtime_env: Annotated[
        Path | None, typer.Option(help="A YAML file for Ray, such as configs/runtime_env.yaml.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="The dashboard's address.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not follow the job.")] = False,
) -> None:
    """Run `ray job submit`, unless the working directory is too large for it."""
    from .submit import submit as submit_job

    ray_options = [] if address is None else ["--address", address]
    ray_options += ["--no-wait"] if no_wait else []
    submit_job(working_dir, runtime_env, ray_options, entrypoint)


@app.command(cls=Verb)
def status(
    output: Annotated[str, typer.Argument(help="The output folder of a run.")],
    output_format: opt.TextOrJson = "text",
) -> None:
    """Tell how far a run is, from its folder alone: running, stopped or complete."""
    from .status import print_status

    print_status(output, as_json=output_format == "json")


@app.command(cls=Verb)
def generate(
    model: opt.ModelArgument,
    prompt: Annotated[str | None, typer.Option(help="The text to go on from.")] = None,
    messages: opt.MessagesFile = None,
    tools: opt.ToolsFile = None,
    chat_template: opt.ChatTemplate = None,
    template_kwargs: opt.TemplateKwargs = None,
    tokenizer_pre: opt.TokenizerPre = None,
    parse_special: opt.ParseSpecial = False,
    sha256: opt.Sha256 = None,
    n: opt.Completions = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    min_p: opt.MinP = None,
    seed: opt.Seed = None,
    max_tokens: opt.MaxTokens = None,
    stop: opt.Stop = None,
    stop_token_id: opt.StopTokenId = None,
    ignore_eos: opt.IgnoreEos = False,
    logprobs: opt.LogprobsOption = None,
    presence_penalty: opt.PresencePenalty = None,
    frequency_penalty: opt.FrequencyPenalty = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    threads: opt.Threads = None,
    max_model_len: opt.MaxModelLen = None,
    output_format: opt.TextOrJson = "text",
) -> None:
    """Complete one prompt or conversation in this process and stream the text."""
    from .generation import generate_one
    from .one_request import one_request, prompt_options

    sampling = opt.given(
        n=n,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        stop=stop,
        stop_token_ids=stop_token_id,
        ignore_eos=ignore_eos,
        logprobs=logprobs,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repetition_penalty=repetition_penalty,
    )
    engine = opt.given(threads=threads, max_model_len=max_model_len) | prompt_options(
        chat_template, template_kwargs, tokenizer_pre, parse_special
    )
    request = one_request(prompt, messages, tools, sampling)
    generate_one(model, sha256, engine, request, output_format)


@app.command(cls=Verb)
def tokenize(
    model: opt.ModelArgument,
    messages: opt.MessagesFile = None,
    tools: opt.ToolsFile = None,
    chat_template: opt.ChatTemplate = None,
    template_kwargs: opt.TemplateKwargs = None,
    tokenizer_pre: opt.TokenizerPre = None,
    parse_special: opt.ParseSpecial = False,
    output_format: opt.TextOrJson = "text",
) -> None:
    """Print the token ids and pieces of standard input, or of a conversation."""
    from .one_request import prompt_options
    from .tokenization import tokenize_input

    engine = prompt_options(chat_template, template_kwargs, tokenizer_pre, parse_special)
    tokenize_input(model, messages, tools, engine, output_format)


@app.command(cls=Verb)
def inspect(model: opt.ModelArgument, output_format: opt.TableOrJson = "table") -> None:
    """Print what a GGUF file holds, and whether tokenmill can run it."""
    from .inspection import print_inspection

    print_inspection(model, output_format)


@app.command(cls=Verb)
def perplexity(
    model: opt.ModelArgument,
    text_file: Annotated[
        Path, typer.Argument(metavar="TEXT-FILE", help="A UTF-8 text.", show_default=False)
    ],
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of a window; by default 2048, or the model's context if less."),
    ] = None,
    compute: opt.Compute = None,
    threads: opt.Threads = None,
    output_format: opt.TextOrJson = "text",
) -> None:
    """Score a text: how well the model, in a compute mode, predicts it."""
    from .perplexity import print_perplexity

    engine = opt.given(compute=compute, threads=threads)
    print_perplexity(model, text_file, context, engine, output_format)


@app.command(cls=Verb)
def warmup(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="Fetch it and get all that it needs ready; without it, kernels for any model.",
        ),
    ] = None,
    sha256: opt.Sha256 = None,
    compute: opt.Compute = None,
    threads: opt.Threads = None,
    output_format: opt.TextOrJson = "text",
) -> None:
    """Do now what the first run would do: for images of containers, and before a job."""
    from .warmup import print_warm_up

    print_warm_up(model, sha256, opt.given(compute=compute, threads=threads), output_format)


@app.command(cls=Verb)
def bench(
    model: opt.ModelArgument,
    npp: Annotated[str, typer.Option(help="Prompt tokens a sequence, comma-separated.")] = "128",
    ntg: Annotated[str, typer.Option(help="Generated tokens a sequence.")] = "64",
    npl: Annotated[str, typer.Option(help="Sequences decoded at a time.")] = "1,32",
    compute: opt.Compute = None,
    threads: opt.Threads = None,
    dequant_cache_layers: Annotated[
        str, typer.Option(help="Bounds of the dequant cache in layers to measure; all: no bound.")
    ] = "all",
    max_num_batched_tokens: opt.StepTokens = 512,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show the share of each stage of a step instead.")
    ] = False,
    peer: opt.Peer = None,
    pairs: opt.Pairs = None,
    output_format: opt.TableOrJson = "table",
) -> None:
    """Measure prefill and decode on this machine."""
    from .bench import run_bench
    from .bench_pairs import PEER_PAIRS, check_peer_options, run_against_peer
    from .bench_plan import BenchPlan
    from .profile_report import run_profile

    plan = BenchPlan.parse(
        npp, ntg, npl, dequant_cache_layers, compute, threads, max_num_batched_tokens
    )
    check_peer_options(plan, peer, pairs, profile=profile)
    if peer is not None:
        run_against_peer(model, plan, peer, pairs or PEER_PAIRS, output_format)
    else:
        verb = run_profile if profile else run_bench
        verb(model, plan, output_format)


@app.command("bench-prefix", cls=Verb)
def bench_prefix(
    model: opt.ModelArgument,
    rows: Annotated[int, typer.Option(min=1, help="Rows.")] = 512,
    prefix: Annotated[int, typer.Option(min=1, help="Prompt tokens that all share.")] = 600,
    own: Annotated[int, typer.Option(min=1, help="Prompt tokens of a row's own.")] = 40,
    ntg: Annotated[int, typer.Option(min=1, help="Generated tokens of a row.")] = 16,
    npl: Annotated[int, typer.Option(min=1, help="Rows at a time.")] = 32,
    compute: opt.Compute = None,
    threads: opt.Threads = None,
    output_format: opt.TableOrJson = "table",
) -> None:
    """Measure rows that share a prefix, with and without reuse of its keys and values."""
    from .bench_prefix import PrefixPlan, run_prefix_bench

    computed = opt.given(compute=compute, threads=threads)
    plan = PrefixPlan(rows=rows, prefix=prefix, own=own, tg=ntg, b=npl, **computed)
    run_prefix_bench(model, plan, output_format)


@app.command("bench-mixed", cls=Verb)
def bench_mixed(
    model: opt.ModelArgument,
    npl: Annotated[int, typer.Option(min=1, help="Rows that decode.")] = 16,
    ntg: Annotated[int, typer.Option(min=1, help="Steps that they are watched for.")] = 200,
    long: Annotated[int, typer.Option(min=1, help="Tokens of a long prompt.")] = 4000,
    every: Annotated[int, typer.Option(min=1, help="Steps between two long prompts.")] = 50,
    max_num_batched_tokens: opt.StepTokens = 512,
    compute: opt.Compute = None,
    threads: opt.Threads = None,
    output_format: opt.TableOrJson = "table",
) -> None:
    """Measure how long decoding rows wait for a token while long prompts arrive."""
    from .bench_mixed import MixedPlan, run_mixed_bench

    computed = opt.given(
        max_num_batched_tokens=max_num_batched_tokens, compute=compute, threads=threads
    )
    run_mixed_bench(
        model, MixedPlan(b=npl, tg=ntg, long=long, every=every, **computed), output_format
    )


@app.command("bench-pool", cls=Verb)
def bench_pool(output_format: opt.TableOrJson = "table") -> None:
    """Measure the KV pool's bookkeeping in pools of several sizes."""
    from .bench_pool import run_pool_bench

    run_pool_bench(output_format)


cache = typer.Typer(
    help="What tokenmill keeps on this machine: packed weights, kernels, downloads.",
    no_args_is_help=True,
)
app.add_typer(cache, name="cache")


@cache.command("ls", cls=Verb)
def cache_ls(output_format: opt.TableOrJson = "table") -> None:
    """List what the cache folder holds."""
    from .cache import list_cache

    list_cache(output_format)


@cache.command("rm", cls=Verb)
def cache_rm(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="As listed; a folder's name for all in it."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that is not in use.")] = False,
) -> None:
    """Remove what can be made or fetched again, unless a running process uses it."""
    from .cache import remove_from_cache

    remove_from_cache(names or (), everything=everything)


@cache.command("limit", cls=Verb)
def cache_limit(
    size: Annotated[
        str | None,
        typer.Argument(metavar="[SIZE]", help="Such as 20GB; default takes a limit back."),
    ] = None,
) -> None:
    """Print or set the most that packed weights may take on the disk."""
    from .cache import limit_cache

    limit_cache(size)


@app.command("bench-kernels", cls=Verb)
def bench_kernels(
    types: Annotated[
        str | None, typer.Option(help="Tensor types, comma-separated; all by default.")
    ] = None,
    threads: Annotated[str, typer.Option(help="Numbers of threads, comma-separated.")] = "1,2",
    output_format: opt.TableOrJson = "table",
) -> None:
    """Measure the kernels alone, beside the peak of this CPU."""
    from .bench_kernels import run_kernel_bench

    run_kernel_bench(types, threads, output_format)


if __name__ == "__main__":
    main()
