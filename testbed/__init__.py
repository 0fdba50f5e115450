"""A small cluster on one machine: hosts that are namespaces, each with a real SSH server and one node of a lab engine.

For developers and tests; not part of the wheel. `python -m testbed up` starts one, `testbed.bed.Bed.start()` does so
for a test.

    supervisor   owns everything, lives in a network namespace of its own in which a bridge joins the hosts
    init         process 1 of a host: namespaces of network, processes, mounts, name; tmpfs where a machine writes
    keeper       the host's service manager: sshd, the engine's node, and what tests ask of a host
    laptop       where `pdchaos` runs: its network, /run and /dev/shm are its own, all else is this machine's

Nothing is made in the machine's own network namespace, and nothing has a name that another bed could have. Every
process holds the end of a pipe of the one above it: the end of the supervisor, by whatever means, ends all of it.
"""
