"""The interfaces of this machine."""

from __future__ import annotations

import json
import subprocess

import pytest

from entrypoint.system import network


def test_the_kernel_and_ip_agree() -> None:
    try:
        said = subprocess.run(["ip", "-json", "address"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no ip here")
    expected = {
        (link["ifname"], entry["local"])
        for link in json.loads(said)
        for entry in link["addr_info"]
        if "UP" in link["flags"] and "LOOPBACK" not in link["flags"] and entry["scope"] == "global"
    }
    assert {(each.name, each.address) for each in network.interfaces()} == expected
