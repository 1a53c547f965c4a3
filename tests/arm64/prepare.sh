#!/bin/sh
# Makes a folder with Python, NumPy and Numba for arm64, to be run under qemu's user emulation.
#
#   tests/arm64/prepare.sh FOLDER PYTHON
#
# FOLDER/root receives packages of this machine's Debian release, FOLDER/site wheels of the pinned
# versions, both for arm64; nothing is installed on the machine. PYTHON needs pip. No root rights
# are needed. A second call does nothing, as long as constraints.txt and this file are the same.
set -eu

folder=$1
pip="$2 -m pip --disable-pip-version-check"
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)

for command in qemu-aarch64-static apt-get dpkg-deb; do
    command -v "$command" >/dev/null || {
        echo "test-arm64 needs $command: a Debian or Ubuntu with qemu-user-static" >&2
        exit 1
    }
done

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
stamp=$(cat "$0" "$project/constraints.txt" | sha256sum)
if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi
rm -rf "$folder/apt" "$folder/root" "$folder/site" "$folder/stamp"
mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"

# A package manager of its own, which believes that nothing is installed yet.
: >"$folder/apt/status"
cat >"$folder/apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Acquire::Languages "none";
Dir::Cache "$folder/apt/cache";
Dir::State "$folder/apt/state";
Dir::State::status "$folder/apt/status";
END
export APT_CONFIG="$folder/apt/apt.conf"
echo 'fetching Python for arm64 ...'
apt-get -qq update
apt-get -qq --yes --download-only install python3-minimal libpython3-stdlib libstdc++6 libgomp1
for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/root"
done
# Where /lib is a link to /usr/lib, packages hold /usr/lib only; the link comes from another one.
[ -e "$folder/root/lib" ] || ln -s usr/lib "$folder/root/lib"
rm -r "$folder/apt"

version=$(basename "$(ls "$folder"/root/usr/bin/python3.[0-9]*)" | sed s/python//)
echo "fetching NumPy and Numba for arm64 and Python $version ..."
platforms='--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64'
platforms="$platforms --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64"
# shellcheck disable=SC2086 # pip and platforms are several words
$pip install --quiet --target "$folder/site" --only-binary=:all: $platforms \
    --python-version "$version" --constraint "$project/constraints.txt" gguf numba numpy psutil threadpoolctl
echo "$stamp" >"$folder/stamp"
