"""The files of ``configs/fleet``: what a Mac would run, with the Mac's commands faked."""

import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

FLEET = Path(__file__).resolve().parents[1] / "configs/fleet"
MAC = {
    "uname": "echo Darwin",
    "sysctl": "test $2 = hw.perflevel0.physicalcpu && echo 4",
    "route": "echo '  interface: en7'",
    "ipconfig": "test $1 = getifaddr && test $2 = en7 && echo 192.168.1.23",
    "caffeinate": 'echo "$@" > awake',
}
LINUX = {"uname": "echo Linux", "nproc": "echo 6", "hostname": "echo '10.0.0.7 172.17.0.1'"}
SHOW_ENVIRONMENT = "env | grep ^RAY_ > environment; "


@pytest.fixture
def node(tmp_path):
    """Run ray-node.sh on a pretended system; returns what ``ray`` was called with."""
    # A copy: beside the script itself there may be an environment, whose `ray` is the real one.
    folder = tmp_path / "project/configs/fleet"
    folder.mkdir(parents=True)
    script = shutil.copy(FLEET / "ray-node.sh", folder)

    def run(commands, *arguments, **environment):
        for name, body in (commands | {"ray": f'{SHOW_ENVIRONMENT}echo "$@"'}).items():
            command = tmp_path / name
            command.write_text(f"#!/bin/sh\n{body}\n")
            command.chmod(0o755)
        path = f"{tmp_path}{os.pathsep}{os.defpath}"
        done = subprocess.run(
            ["/bin/sh", script, *arguments],
            cwd=tmp_path,
            env={"PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split(), done

    return run


def test_a_mac_gives_its_performance_cores_and_stays_awake(node, tmp_path):
    """Ray would count efficiency cores too; caffeinate lasts as long as the node."""
    words, _ = node(MAC, "192.168.1.10:6379")
    assert ["start", "--block", "--address=192.168.1.10:6379"] == words[:3]
    assert {"--num-cpus=4", "--node-ip-address=192.168.1.23"} <= set(words)
    environment = (tmp_path / "environment").read_text().split()
    assert {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1", "RAY_AUTH_MODE=token"} <= set(environment)
    assert (tmp_path / "awake").read_text().startswith("-ims -w ")


def test_a_mac_with_intel_gives_all_its_cores(node):
    """It has no levels of performance."""
    intel = MAC | {"sysctl": "test $2 = hw.physicalcpu && echo 6"}
    words, _ = node(intel, "head")
    assert {"--head", "--port=6379", "--num-cpus=6"} <= set(words)


def test_a_linux_box_may_be_among_them(node):
    """Its first address and all its cores."""
    words, _ = node(LINUX, "head")
    assert {"--head", "--num-cpus=6", "--node-ip-address=10.0.0.7"} <= set(words)


def test_what_is_found_can_be_set_and_more_given(node):
    """Address, threads and object store by the environment; further arguments go to Ray."""
    own = {"NODE_IP": "10.1.1.1", "NODE_CPUS": "2", "OBJECT_STORE_BYTES": "100000000"}
    words, _ = node(MAC, "head", "--temp-dir=/t", **own)
    expected = {"--node-ip-address=10.1.1.1", "--num-cpus=2", "--object-store-memory=100000000"}
    assert expected | {"--temp-dir=/t"} <= set(words)


def test_all_ports_are_fixed_and_different(node):
    """A firewall can be told them: none is left to chance."""
    words, _ = node(MAC, "head")
    ports = [word.split("=")[1] for word in words if "-port=" in word or word.startswith("--port")]
    assert (11, 11) == (len(ports), len(set(ports)))
    assert all(6379 <= int(port) <= 6499 or port == "8265" for port in ports)


def test_without_a_role_nothing_starts(node):
    """The message says what is missing."""
    words, done = node(MAC)
    assert ([], True) == (words, done.returncode != 0)
    assert "say head, or the address" in done.stderr


def test_the_launchd_template_keeps_the_node_up():
    """It parses, runs the script in the foreground, and starts it again whenever it ends."""
    plist = plistlib.loads((FLEET / "local.tokenmill.ray-node.plist").read_bytes())
    shell, script, role = plist["ProgramArguments"]
    assert ("/bin/sh", "HEAD:6379") == (shell, role)
    assert (FLEET.parents[1] / Path(script).relative_to("FOLDER")).is_file()
    assert (True, True) == (plist["KeepAlive"], plist["RunAtLoad"])


def test_ray_takes_the_cluster_file():
    """Validated and completed by Ray itself; the same Macs come out."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    cluster = yaml.safe_load((FLEET / "cluster.yaml").read_text())
    prepared = util.prepare_config(cluster)
    util.validate_config(prepared)
    assert "local" == prepared["provider"]["type"]
    (kind,) = prepared["available_node_types"].values()
    assert 4 == len(prepared["provider"]["worker_ips"]) == kind["min_workers"]
