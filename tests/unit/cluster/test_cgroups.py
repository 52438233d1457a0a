"""Which hierarchies there are, and how they are mounted anew."""

from pathlib import Path

from tests.cluster.cgroups import Hierarchy, enter_command, hierarchies

V1 = """\
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,nosuid,nodev,noexec,relatime,name=systemd 0 0
tmpfs /run tmpfs rw 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"


def test_hierarchies_of_both_kinds_are_found_and_mounted_with_their_controllers() -> None:
    cpu, named, unified = hierarchies(V1 + V2)

    assert Hierarchy(Path("/sys/fs/cgroup/cpu"), "cgroup", ("cpu", "cpuacct")) == cpu
    assert ["mount", "-t", "cgroup", "-o", "cpu,cpuacct", "cgroup", "/sys/fs/cgroup/cpu"] == cpu.mount_command()
    assert "none,name=systemd" in named.mount_command()
    assert ["mount", "-t", "cgroup2", "-o", "nsdelegate", "cgroup2", "/sys/fs/cgroup"] == unified.mount_command()


def test_a_command_enters_every_cgroup_before_it_runs(tmp_path: Path) -> None:
    doors = [tmp_path / "a", tmp_path / "b"]

    shell, _, script, *rest = enter_command(doors, ["true", "it"])

    assert ("sh", ["sh", "true", "it"]) == (shell, rest)
    assert f'echo $$ > "{doors[0]}"; echo $$ > "{doors[1]}"; exec "$@"' == script
