"""Nodes whose networks a test lays out before a job starts: a container that sleeps holds each
node's, as in a Pod."""

from __future__ import annotations

import ipaddress
import os
import secrets
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from shlex import split

import pytest
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool

from tests.containers import IMAGE, docker, engine, inspect, missing, remove

MAIN = "main"  # the network that the nodes' names lead to


class Pods:
    """A node is its interfaces and their networks, in the order of connection: "eth0=main
    ib0=second".

    An engine calls them eth0, eth1, ...; another name is given before any job starts. With `ipv6`
    there is no IPv4.
    """

    def __init__(self, nodes: Sequence[str], ipv6: bool) -> None:
        self.nodes = {
            f"worker-{rank}": dict(word.split("=") for word in node.split())
            for rank, node in enumerate(nodes)
        }
        self._ipv6 = ipv6
        self._prefix = f"ep{os.getpid()}-{secrets.token_hex(2)}"
        self._networks: list[str] = []
        self._holders: dict[str, str] = {}  # host -> container
        self._jobs: list[str] = []  # containers of the last job

    def lay_out(self) -> None:
        """Make the networks, and the nodes in them."""
        if os.geteuid() != 0:
            pytest.skip("only root may change the network of a container")
        for network in dict.fromkeys(
            network for node in self.nodes.values() for network in node.values()
        ):
            subnet = f"fd{secrets.token_hex(1)}:{secrets.token_hex(2)}:{secrets.token_hex(2)}::/64"
            ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)]) if self._ipv6 else None
            engine().networks.create(self._name(network), enable_ipv6=self._ipv6, ipam=ipam)
            self._networks.append(self._name(network))
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(self._lay_out_node, self.nodes))

    def _lay_out_node(self, host: str) -> None:
        first, *others = self.nodes[host].values()
        # A name is known in the main network alone.
        alias = ("--network-alias", host) if first == MAIN else ()
        holder = docker(
            "run", "-d", "--name", self._name(host), "--no-healthcheck", "--hostname", host,
            "--network", self._name(first), *alias,
            "--entrypoint", "sleep", IMAGE, "infinity",
        ).strip()  # fmt: skip
        self._holders[host] = holder
        for network in others:
            aliases = [host] if network == MAIN else None
            self._network(network).connect(holder, aliases=aliases)
        for number, (interface, network) in enumerate(self.nodes[host].items()):
            if interface != f"eth{number}":
                self._ip(host, f"link set eth{number} down")
                self._ip(host, f"link set eth{number} name {interface}")
                self._ip(host, f"link set {interface} up")
                if self._ipv6:  # the kernel took it as the link went down
                    self._ip(
                        host,
                        f"address replace {self.address(host, network)}/64 dev {interface} nodad",
                    )
        if self._ipv6:
            for interface in self.nodes[host]:
                self._ip(host, f"-4 address flush dev {interface}")
            lines = "127.0.0.1 localhost", "::1 localhost", f"{self.address(host, MAIN)} {host}"
            docker(
                "exec",
                "--user",
                "0",
                holder,
                "sh",
                "-c",
                'printf "%s\\n" "$@" >/etc/hosts',
                "sh",
                *lines,
            )

    def _ip(self, host: str, words: str) -> None:
        """Run `ip` in the network of a node."""
        pid = inspect(self._holders[host])["State"]["Pid"]
        argv = ["nsenter", "--target", str(pid), "--net", "ip", *words.split()]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"

    def _name(self, thing: str) -> str:
        return f"{self._prefix}-{thing}"

    def _network(self, network: str) -> Network:
        return engine().networks.get(self._name(network))

    def address(self, host: str, network: str) -> str:
        """Where the node is in that network."""
        there = inspect(self._holders[host])["NetworkSettings"]["Networks"][self._name(network)]
        return str(there["GlobalIPv6Address" if self._ipv6 else "IPAddress"])

    def cidr(self, network: str) -> str:
        """The network, as an interface's own address has it."""
        said = self._network(network).attrs["IPAM"]["Config"]
        found = [ipaddress.ip_network(each["Subnet"]) for each in said]
        return next(str(each) for each in found if (each.version == 6) == self._ipv6)

    def start(
        self,
        image: str,
        *command: str,
        **env: str,
    ) -> dict[str, str]:
        """The containers of a job on all nodes: host -> id. Those of the job before it are
        removed."""
        if reason := missing(image):
            pytest.skip(reason)
        self._end_job()
        given = {
            "ENTRYPOINT_HOSTS": ",".join(self.nodes),
            "ENTRYPOINT_SLOTS": "1",
            "ENTRYPOINT_SECRET": secrets.token_hex(32),
            "ENTRYPOINT_TIMEOUTS_PEERS": "60",
            "ENTRYPOINT_TIMEOUTS_LAUNCH": "60",
            "OMP_NUM_THREADS": "1",
            **env,
        }
        variables = [word for name, value in given.items() for word in ("-e", f"{name}={value}")]

        def run(host: str) -> str:
            holder = f"container:{self._holders[host]}"
            return docker(
                *split("run -d --no-healthcheck --network"),
                holder,
                *variables,
                image,
                *command,
            ).strip()

        with ThreadPoolExecutor(len(self.nodes)) as pool:
            started = dict(zip(self.nodes, pool.map(run, self.nodes), strict=True))
        self._jobs = list(started.values())
        return started

    def _end_job(self) -> None:
        remove(*self._jobs)
        self._jobs = []

    def close(self) -> None:
        self._end_job()
        remove(*self._holders.values())
        for name in self._networks:
            engine().networks.get(name).remove()
