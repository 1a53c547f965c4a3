"""The verbs that work in this process: generate, tokenize, inspect, bench; and usage errors."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from worker.engine.request import Request

from .conftest import ROOT

VERBS = ("run", "generate", "tokenize", "inspect", "perplexity", "bench", "bench-kernels")


def lines_of(result) -> list[str]:
    """The lines on standard error."""
    return result.stderr.splitlines()


def test_help_lists_the_verbs(invoke):
    """The first thing a user types answers."""
    result = invoke("--help")
    assert 0 == result.exit_code
    assert all(verb in result.stdout for verb in VERBS)


def test_version_is_that_of_the_distribution(invoke):
    """The code's own version and pyproject.toml's are one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"tokenmill {project['version']}\n" == invoke("--version").stdout


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(invoke, verb):
    """Every verb explains itself without a model."""
    result = invoke(verb, "--help")
    assert 0 == result.exit_code
    assert "Usage" in result.stdout


def test_a_misspelt_option_is_a_usage_error(invoke):
    """Nothing is ignored on the command line."""
    result = invoke("inspect", "x.gguf", "--josn")
    assert 2 == result.exit_code
    assert "--josn" in result.stderr


def test_generate_completes_a_prompt(invoke, chain_llama):
    """Text goes to standard output, with a line break at its end, and nothing else does."""
    result = invoke("generate", chain_llama, "--prompt", "is it?")
    assert (0, "yes\n") == (result.exit_code, result.stdout)


def test_generate_takes_all_sampling_options(invoke, chain_llama, monkeypatch):
    """Each sampling parameter has its flag, and its value reaches the request."""
    values = {
        "n": 3,
        "temperature": 0.5,
        "top_k": 1,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 7,
        "max_tokens": 2,
        "logprobs": 3,
        "presence_penalty": 0.25,
        "frequency_penalty": 0.125,
        "repetition_penalty": 1.5,
    }
    flags = [part for name, value in values.items() for part in (_flag(name), value)]
    flags += ["--stop", "y", "--stop", "zz", "--stop-token-id", 5, "--ignore-eos"]
    requests: list[Request] = []
    monkeypatch.setattr(
        "jobs.generation.generate_one", lambda *arguments: requests.append(arguments[3])
    )
    result = invoke("generate", chain_llama, "--prompt", "is it?", *flags)
    assert 0 == result.exit_code, result.stderr
    expected = values | {"stop": ("y", "zz"), "stop_token_ids": (5,), "ignore_eos": True}
    assert expected == asdict(requests[0].sampling)


def _flag(name: str) -> str:
    """The option of a sampling parameter."""
    return "--" + name.replace("_", "-")


def test_generate_heeds_max_tokens(invoke, chain_llama):
    """The text ends where it is told to."""
    result = invoke("generate", chain_llama, "--prompt", "is it?", "--max-tokens", 2)
    assert (0, "ye\n") == (result.exit_code, result.stdout)


def test_generate_reports_logprobs_as_json(invoke, chain_llama):
    """-o json gives ids, counts, reasons and the top K at each position."""
    result = invoke("generate", chain_llama, "--prompt", "is it?", "--logprobs", 2, "-o", "json")
    answer = json.loads(result.stdout)
    assert ("yes", "stop", None) == (
        answer["text"],
        answer["finish_reason"],
        answer["stop_reason"],
    )
    assert len(answer["generated_tokens"]) == answer["num_generated_tokens"] == 3
    assert ["y", "e", "s"] == [entry["piece"] for entry in answer["logprobs"]]
    assert all(2 == len(entry["top"]) for entry in answer["logprobs"])
    assert answer["logprobs"][0]["top"][0]["token_id"] == answer["generated_tokens"][0]


def test_generate_prints_every_completion(invoke, chain_llama):
    """Each has a heading and ends in a line break; the first is the one of a single completion."""
    drawn = ("generate", chain_llama, "--prompt", "a1", "--temperature", 100, "--max-tokens", 6)
    single, several = invoke(*drawn), invoke(*drawn, "--n", 3)
    assert 0 == single.exit_code == several.exit_code, several.stderr
    answer = json.loads(invoke(*drawn, "--n", 3, "-o", "json").stdout)
    texts = [completion["text"] for completion in answer["completions"]]
    assert single.stdout == f"{texts[0]}\n"
    assert several.stdout == "".join(
        f"--- completion {number} of 3 ---\n{text}\n" for number, text in enumerate(texts, 1)
    )
    assert 3 == len(set(texts))


def test_generate_gives_every_completion_as_json(invoke, chain_llama):
    """The first where a single one stands, and all of them in a list; none without --n."""
    drawn = ("generate", chain_llama, "--prompt", "a1", "--temperature", 100, "--logprobs", 0)
    single, several = (
        json.loads(invoke(*drawn, "-o", "json", *more).stdout) for more in ((), ("--n", 2))
    )
    first, second = several.pop("completions")
    timed = {"ttft_s", "latency_s"}
    assert single.keys() == several.keys()
    assert [name for name in single if single[name] != several[name] and name not in timed] == []
    assert first == {name: several[name] for name in first}
    assert len(second["generated_tokens"]) == second["num_generated_tokens"]
    assert len(second["logprobs"]) == second["num_generated_tokens"]


def test_generate_takes_a_conversation(invoke, cases, tmp_path):
    """Messages from a file go through the model's template."""
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "is it?"}]))
    model = cases / "305-template-refuses-system" / "model.gguf"
    result = invoke("generate", model, "--messages", messages)
    assert (0, "yes\n") == (result.exit_code, result.stdout)


def test_generate_takes_a_conversation_from_standard_input(invoke, cases):
    """A dash reads the messages from standard input."""
    messages = json.dumps([{"role": "system", "content": "x"}, {"role": "user", "content": "y?"}])
    model = cases / "305-template-refuses-system" / "model.gguf"
    result = invoke("generate", model, "--messages", "-", stdin=messages)
    assert 3 == result.exit_code
    assert "System role not supported by this model" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give either --prompt TEXT or --messages FILE"),
        (("--prompt", "a", "--messages", "-"), 2, "give either"),
        (("--messages", "/nowhere.json"), 2, "/nowhere.json: cannot be read"),
        (("--prompt", "a", "--temperature", "-1"), 2, "temperature: -1"),
        (("--prompt", "a", "--n", "129"), 2, "n: 129"),
        (("--prompt", "a", "--top-p", "nan"), 2, "top_p: NaN"),
        (("--prompt", "a", "--logprobs", "2"), 2, "-o json"),
        (("--prompt", "a", "--max-model-len", "100000"), 2, "max_model_len"),
        (("--prompt", "a" * 3000), 3, "prompt too long"),
        (("--prompt", "a", "--sha256", "0" * 64), 4, "SHA-256"),
    ],
)
def test_generate_refuses_in_one_line(invoke, chain_llama, arguments, code, message):
    """Wrong options exit 2, a prompt that has no answer 3, a model that is not the one 4."""
    result = invoke("generate", chain_llama, *arguments)
    assert code == result.exit_code, result.stderr
    assert message in lines_of(result)[-1]
    assert "Traceback" not in result.stderr
    assert "" == result.stdout


@pytest.mark.parametrize("verb", ["generate", "tokenize"])
def test_messages_without_a_template_are_explained(invoke, cases, verb, tmp_path):
    """A model without a template says how to give one, and takes the one given."""
    messages = json.dumps([{"role": "user", "content": "is it?"}])
    model = cases / "315-no-template" / "model.gguf"
    result = invoke(verb, model, "--messages", "-", stdin=messages)
    assert 4 == result.exit_code
    assert [True] == ["--chat-template FILE" in line for line in lines_of(result)]
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}", encoding="utf-8")
    given = ("--messages", "-", "--chat-template", template)
    assert 0 == invoke(verb, model, *given, stdin=messages).exit_code


def test_a_template_file_that_is_not_there_is_a_usage_error(invoke, chain_llama, tmp_path):
    """The file is named before the model is loaded."""
    result = invoke(
        "generate", chain_llama, "--prompt", "a", "--chat-template", tmp_path / "none.jinja"
    )
    assert (2, "none.jinja: cannot be read") == (
        result.exit_code,
        lines_of(result)[-1].split("/")[-1].partition(": No")[0],
    )


def test_tokenize_prints_ids_and_pieces(invoke, chain_llama):
    """Standard input byte for byte; control tokens spelled in it stay text."""
    result = invoke("tokenize", chain_llama, "-o", "json", stdin="is it?\n")
    answer = json.loads(result.stdout)
    assert "<|bos|>is it?\n" == "".join(answer["pieces"])
    assert len(answer["ids"]) == len(answer["pieces"])
    shown = invoke("tokenize", chain_llama, stdin="is it?\n")
    assert len(answer["ids"]) == len(shown.stdout.splitlines())


def test_tokenize_shows_the_rendered_prompt(invoke, cases):
    """With messages, the prompt that the template makes comes first."""
    model = cases / "321-template-line-breaks" / "model.gguf"
    messages = json.dumps([{"role": "user", "content": "is it?"}])
    answer = json.loads(
        invoke("tokenize", model, "--messages", "-", "-o", "json", stdin=messages).stdout
    )
    assert "<|bos|>\nis it?\n" == answer["prompt"]
    assert 8 == len(answer["ids"])


def test_tokenize_with_a_template_tools_and_variables(invoke, chain_llama, tmp_path):
    """A template by name or file, variables for it, and tools beside the messages."""
    messages, tools, template = (tmp_path / name for name in ("m.json", "t.json", "own.jinja"))
    messages.write_text('[{"role": "user", "content": "is it?"}]')
    tools.write_text('[{"name": "f"}]')
    template.write_text("{{ tools[0].name }} {{ mood }}")
    given = ("tokenize", chain_llama, "--messages", messages, "-o", "json")
    by_name = json.loads(invoke(*given, "--chat-template", "vicuna").stdout)
    assert "USER: is it?\nASSISTANT:" == by_name["prompt"]
    variables = ("--template-kwargs", '{"mood": "glad"}')
    by_file = invoke(*given, "--chat-template", template, "--tools", tools, *variables)
    assert "f glad" == json.loads(by_file.stdout)["prompt"]
    unknown = invoke(*given, "--chat-template", "vicunja")
    assert (2, True) == (unknown.exit_code, "did you mean vicuna?" in unknown.stderr)
    broken = invoke(*given, "--template-kwargs", "[1]")
    assert (2, True) == (broken.exit_code, "found a list, expected an object" in broken.stderr)


def test_tokenize_with_control_tokens_parsed(invoke, chain_llama):
    """--parse-special makes tokens of what is text otherwise."""
    ids = json.loads(invoke("tokenize", chain_llama, "-o", "json", stdin="<|eos|>").stdout)["ids"]
    parsed = invoke("tokenize", chain_llama, "--parse-special", "-o", "json", stdin="<|eos|>")
    assert 2 == len(json.loads(parsed.stdout)["ids"]) < len(ids)


def test_tokenize_refuses_what_is_not_utf8(invoke, chain_llama):
    """Bytes that are no text have no tokens."""
    result = invoke("tokenize", chain_llama, stdin=b"caf\xe9")
    assert 3 == result.exit_code
    assert "not valid UTF-8 (byte 3)" in result.stderr


def test_inspect_shows_a_model_that_runs(invoke, chain_llama):
    """Architecture, sizes, types, tokenizer, template and the verdict."""
    shown = invoke("inspect", chain_llama).stdout
    for word in ("architecture", "llama", "context length", "tensors", "tokenizer", "can run"):
        assert word in shown
    answer = json.loads(invoke("inspect", chain_llama, "-o", "json").stdout)
    assert (True, []) == (answer["can_run"], answer["problems"])
    assert (256, "llama") == (answer["sizes"]["context_length"], answer["architecture"])


def test_inspect_prints_no_control_characters(invoke, chain_llama, tmp_path):
    """A name of a file cannot move the cursor of a terminal, or begin a line of its own."""
    content = chain_llama.read_bytes()
    key = content.index(b"general.name")
    length = int.from_bytes(content[key + 16 : key + 24], "little")
    name = b"\x1b[2J\ncan run  no"[:length].ljust(length)
    path = tmp_path / "model.gguf"
    path.write_bytes(content[: key + 24] + name + content[key + 24 + length :])
    lines = invoke("inspect", path).stdout.splitlines()
    assert [line for line in lines if line.isprintable()] == lines
    assert [line for line in lines if line.startswith("name ")] != []


def test_inspect_says_what_is_dequantised(invoke, data):
    """Tensors without an integer kernel, and the bytes their copies take."""
    path = data / "tiny" / "llama" / "llama-IQ4_NL.gguf"
    shown = invoke("inspect", path).stdout
    assert "int8 dequantises   14 tensors: 2 x blk.*.attn_q.weight, " in shown
    assert "dequant cache      245,760 bytes for all, made once" in shown
    answer = json.loads(invoke("inspect", path, "-o", "json").stdout)["dequantised"]
    assert (14, 245760) == (len(answer["int8"]["tensors"]), answer["int8"]["n_bytes"])
    assert 327680 == answer["f32"]["step_bytes"]


CANNOT_RUN = [
    ("123-unknown-quantization", "type 153"),
    ("133-head-count-missing", "llama.attention.head_count"),
    ("139-more-tokens-than-rows", "304"),
    ("141-no-tokenizer", "tokenizer.ggml.model"),
    ("145-embedding-transposed", "token_embd.weight"),
    ("147-block-count-huge", "block_count"),
    ("151-architecture-unknown", "llama9"),
]


@pytest.mark.parametrize(("case", "problem"), CANNOT_RUN)
def test_generate_refuses_a_model_that_cannot_run(invoke, cases, case, problem):
    """A sound file that tokenmill cannot run is one clear line as well."""
    result = invoke("generate", cases / case / "model.gguf", "--prompt", "a")
    assert 4 == result.exit_code
    assert [True] == [problem in line for line in lines_of(result)]


@pytest.mark.parametrize(("case", "problem"), CANNOT_RUN[1:])
def test_inspect_says_why_a_model_cannot_run(invoke, cases, case, problem):
    """A readable file that cannot run is no failure of inspect; the reason is shown."""
    result = invoke("inspect", cases / case / "model.gguf", "-o", "json")
    answer = json.loads(result.stdout)
    assert (0, False) == (result.exit_code, answer["can_run"])
    assert any(problem in text for text in answer["problems"])


def test_inspect_cannot_size_a_type_it_does_not_know(invoke, cases):
    """A type number without a known size leaves nothing to look at."""
    result = invoke("inspect", cases / "123-unknown-quantization" / "model.gguf")
    assert 4 == result.exit_code
    assert "type 153" in lines_of(result)[-1]


@pytest.mark.parametrize(
    "case",
    [
        "101-truncated-tail",
        "103-html-instead-of-model",
        "105-version-from-the-future",
        "107-big-endian",
        "111-alignment-zero",
        "113-tensor-count-huge",
        "115-key-length-huge",
        "117-dimensions-overflow",
        "119-nested-arrays",
        "121-duplicate-key",
        "125-row-not-a-block-multiple",
        "149-offset-unaligned",
    ],
)
@pytest.mark.parametrize("verb", [("inspect",), ("generate", "--prompt", "a")])
def test_a_damaged_model_exits_4(invoke, cases, case, verb):
    """One clear line that names the file, no traceback."""
    path = cases / case / "model.gguf"
    result = invoke(verb[0], path, *verb[1:])
    assert 4 == result.exit_code
    assert [True] == [str(path) in line for line in lines_of(result)]


@pytest.mark.parametrize("source", ["nowhere.gguf", "hf:x", "pypi:x", "ftp://a/b.gguf"])
def test_a_model_source_that_is_none_exits_4(invoke, source):
    """The forms of a source are in the message."""
    result = invoke("inspect", source)
    assert 4 == result.exit_code
    assert "hf:OWNER/NAME/FILE" in result.stderr


def test_a_reader_that_stops_early_is_no_error(chain_llama):
    """``tokenmill ... | head -1`` ends quietly."""
    command = f"{sys.executable} -m jobs.cli tokenize {chain_llama} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        input="word " * 40,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("compute", ["int8", "f32"])
def test_bench_measures_each_case(invoke, chain_llama, compute):
    """Columns of llama.cpp's batched bench, a line a combination, and a checksum."""
    result = invoke(
        *("bench", chain_llama, "--npp", "8,16", "--ntg", "4", "--npl", "1,3"),
        *("--compute", compute, "-o", "json"),
    )
    assert 0 == result.exit_code, result.stderr
    found = json.loads(result.stdout)
    assert compute == found["compute"]
    lines = found["results"]
    assert [(8, 1), (8, 3), (16, 1), (16, 3)] == [(line["pp"], line["b"]) for line in lines]
    for line in lines:
        assert line["n_kv"] == line["b"] * (line["pp"] + 4)
        assert line["s_tg"] == pytest.approx(line["b"] * 4 / line["t_tg_s"])
        assert line["t_s"] == pytest.approx(line["t_pp_s"] + line["t_tg_s"])
        assert 0 < line["decode_ms"] <= 1000 * line["t_tg_s"]
        assert re.fullmatch("[0-9a-f]{16}", line["checksum"])
        if compute == "f32":
            assert line["of_blas"] == pytest.approx(line["blas_ms"] / line["decode_ms"])
        else:  # neither BLAS nor the dequant cache plays a part
            assert (None, None, None) == tuple(
                line[key] for key in ("blas_ms", "of_blas", "dequant_hit_rate")
            )


def test_bench_does_not_depend_on_the_cache_bound(invoke, chain_llama):
    """Bounds of the dequant cache change times and hit rates, never tokens."""
    result = invoke(
        *("bench", chain_llama, "--compute", "f32", "--npp", 8, "--ntg", 4, "--npl", 2),
        *("--dequant-cache-layers", "all,2", "-o", "json"),
    )
    bounded, whole = json.loads(result.stdout)["results"]
    assert (2, None) == (bounded["dequant_cache_layers"], whole["dequant_cache_layers"])
    assert bounded["checksum"] == whole["checksum"]
    assert bounded["dequant_hit_rate"] < whole["dequant_hit_rate"] == 1.0


def test_bench_table_has_llama_cpp_columns(invoke, chain_llama):
    """The table can be laid beside llama.cpp's."""
    result = invoke("bench", chain_llama, "--npp", 8, "--ntg", 2, "--npl", 1)
    header = result.stdout.splitlines()[0]
    names = ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"]
    assert names == [name for name in names if name in header]
    assert "compute: int8" in result.stdout.splitlines()
    assert not any(name in header for name in ("BLAS", "cached", "hits"))


def test_bench_table_of_f32_shows_blas_and_cache(invoke, chain_llama):
    """What float32 copies of the weights cost is seen where there are any."""
    sizes = ("--npp", 8, "--ntg", 2, "--npl", 1)
    header = invoke("bench", chain_llama, "--compute", "f32", *sizes).stdout.splitlines()[0]
    assert all(name in header for name in ("BLAS ms", "of BLAS", "cached layers", "hits"))


@pytest.mark.parametrize("compute", ["int8", "f32"])
def test_bench_profile_shares_add_up(invoke, chain_llama, compute):
    """Stages and the rest are the whole step."""
    result = invoke(
        *("bench", chain_llama, "--compute", compute, "--npp", 8, "--ntg", 4, "--npl", 2),
        *("--profile", "-o", "json"),
    )
    prefill, decode = json.loads(result.stdout)
    assert ("prefill", "decode", 4) == (prefill["phase"], decode["phase"], decode["steps"])
    for profile in (prefill, decode):
        assert 1.0 == pytest.approx(sum(stage["share"] for stage in profile["stages"]))
        stages = {stage["stage"]: stage for stage in profile["stages"]}
        assert {"attn_qkv", "attention", "rope_kv_write", "ffn_down", "norm"} <= set(stages)
        assert all(stages[name]["calls"] > 0 for name in ("attn_qkv", "attention", "ffn_down"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--npp", "x"), 2, "--npp x: found 'x', expected positive whole numbers"),
        (("--npl", "0"), 2, "--npl 0"),
        (("--ntg", "4,"), 2, "--ntg 4,"),
        (("--dequant-cache-layers", "few"), 2, "--dequant-cache-layers few"),
        (("--npp", "300"), 2, "context is 256"),
        (("--compute", "f32", "--dequant-cache-layers", "1"), 2, "at least 2"),
        (("--compute", "int4"), 2, "int4"),
    ],
)
def test_bench_refuses_in_one_line(invoke, chain_llama, arguments, code, message):
    """What cannot be measured is said before anything is."""
    result = invoke("bench", chain_llama, *arguments)
    assert code == result.exit_code
    assert message in lines_of(result)[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_one_line(chain_llama):
    """Nothing is lost silently: the line says why, the code that the same command can go on."""
    command = f"{sys.executable} -m jobs.cli inspect {chain_llama} > /dev/full"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert 75 == done.returncode, done.stderr
    assert [True] == ["No space left on device" in line for line in done.stderr.splitlines()]
