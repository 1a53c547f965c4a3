"""A program that answers like llama-batched-bench, with speeds a test chooses; see test_bench_peer.

It is written out with SPEEDS replaced, and notes every call's arguments in calls.txt beside it.
"""

SCRIPT = """#!{python}
import json
import sys
from pathlib import Path

arguments = sys.argv[1:]
flags = dict(zip(arguments[::2], arguments[1::2]))
calls = Path(__file__).with_name("calls.txt")
earlier = calls.read_text().count("\\n") if calls.exists() else 0
with calls.open("a") as file:
    print(*arguments, file=file)
{body}
prefill, decode = {speeds!r}[flags["-fa"], flags["-ub"]]
print()
print(json.dumps({{
    "n_threads": int(flags["-t"]), "is_pp_shared": 0,
    "pp": int(flags["-npp"]), "tg": int(flags["-ntg"]), "pl": int(flags["-npl"]),
    "speed_pp": prefill, "speed_tg": decode,
}} | {changes!r}))
print()
"""

# On short prompts only the two with -ub 512 are tried.
SPEEDS = {
    ("on", "512"): (1e-3, 2e-3),
    ("off", "512"): (4e-3, 1e-3),
    ("on", "2048"): (5e-3, 1e-3),
    ("off", "2048"): (1e-3, 1e-3),
}
