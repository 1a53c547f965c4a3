#!/bin/sh
# A node of a fleet, in the foreground: Ray with a token, fixed ports and a small object store.
# README.md, "A fleet of Macs", says how it is used; launchd keeps it running on each Mac.
#
#   configs/fleet/ray-node.sh head                  on the machine that jobs are submitted to
#   configs/fleet/ray-node.sh HEAD-ADDRESS:6379     on every other one
#
# Further arguments go to `ray start`.
# From the environment, if what is found is not right: NODE_IP, the address by which the others reach
# this machine; NODE_CPUS, the threads of its worker; OBJECT_STORE_BYTES.
set -eu

role=${1:?say head, or the address and port of the head, as in 192.168.1.10:6379}
shift
here=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$here/.venv/bin:$PATH

export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 # without it Ray on a Mac knows its loopback address alone

if [ "$(uname)" = Darwin ]; then
    # Threads of a step wait for the slowest: no worker thread is meant for an efficiency core.
    cpus=$(sysctl -n hw.perflevel0.physicalcpu 2>/dev/null || sysctl -n hw.physicalcpu)
    interface=$(route -n get default | awk '/interface:/ { print $2 }')
    ip=${NODE_IP:-$(ipconfig getifaddr "$interface")}
    caffeinate -ims -w $$ & # no sleep as long as this process, which becomes Ray, is there
else
    cpus=$(nproc)
    ip=${NODE_IP:-$(hostname -I | awk '{ print $1 }')}
fi

if [ "$role" = head ]; then
    set -- --head --port=6379 --dashboard-host=127.0.0.1 --dashboard-port=8265 \
        --ray-client-server-port=6386 "$@"
else
    set -- --address="$role" "$@"
fi

exec ray start --block "$@" --node-ip-address="$ip" --num-cpus="${NODE_CPUS:-$cpus}" \
    --object-store-memory="${OBJECT_STORE_BYTES:-268435456}" \
    --node-manager-port=6380 --object-manager-port=6381 --runtime-env-agent-port=6382 \
    --metrics-export-port=6383 --dashboard-agent-grpc-port=6384 --dashboard-agent-listen-port=6385 \
    --min-worker-port=6400 --max-worker-port=6499
