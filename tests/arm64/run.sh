#!/bin/sh
# Runs Python under emulation, from the repository's root: tests/arm64/run.sh FOLDER ARGUMENTS...
#
# FOLDER was made by prepare.sh. The CPU is Apple's M1 for LLVM, and qemu's fullest for its
# instructions; machine code is kept in FOLDER/cache.
set -eu

folder=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/../.."
python=$(ls "$folder"/root/usr/bin/python3.[0-9]*)
export NUMBA_CPU_NAME=apple-m1
export PYTHONPATH="$folder/site:$PWD"
export PYTHONDONTWRITEBYTECODE=1
export TOKENMILL_CACHE="$folder/cache"
exec nice qemu-aarch64-static -cpu max -L "$folder/root" "$python" "$@"
