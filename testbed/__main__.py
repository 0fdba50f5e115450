"""`python -m testbed`: a small cluster on this machine, for developers and for trying pdchaos over SSH."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from chaos.model.errors import PdchaosError
from testbed.bed import Bed
from testbed.errors import BedError
from testbed.folder import default_folder
from testbed.plan import LAPTOP, TIME_LIMIT_S


def main() -> int:
    """Do what the command line says; the exit code is that of `exec`'s command, else 0, 1 or 2."""
    asked = _parser().parse_args()
    try:
        return int(asked.act(asked) or 0)
    except (BedError, PdchaosError) as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        print(f"testbed: {error.message}{hint}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"testbed: {error.args[0]}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    parser.add_argument("--dir", type=Path, default=default_folder(), help="the bed's folder (default: %(default)s)")
    acts = parser.add_subparsers(required=True, metavar="ACT")
    up = acts.add_parser("up", help="start a cluster in the background")
    up.add_argument("--build", default="healthy", help="a build of the embedded lab (pdchaos lab list)")
    up.add_argument(
        "--engine", default="", help="a real engine instead: sglang@0.5.14, dynamo@1.6.1 (pdchaos lab install)"
    )
    up.add_argument("--prefill", type=int, default=2)
    up.add_argument("--decode", type=int, default=2)
    up.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the lab")
    up.add_argument(
        "--hours", type=float, default=TIME_LIMIT_S / 3600, help="it ends by itself after (default: %(default)g)"
    )
    up.set_defaults(act=_up)
    acts.add_parser("down", help="end it").set_defaults(act=_down)
    acts.add_parser("status", help="hosts, nodes, and what was left behind on them").set_defaults(act=_status)
    run = acts.add_parser("exec", help="run a command on a host; pdchaos runs on the laptop")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(act=_exec)
    closed = acts.add_parser("only-ssh", help="the laptop reaches nothing but SSH on the hosts; `off` undoes it")
    closed.add_argument("switch", nargs="?", choices=("on", "off"), default="on")
    closed.set_defaults(act=lambda asked: Bed.attach(asked.dir).only_ssh(on=asked.switch == "on"))
    for name, about in (("cut", "drop every packet between the laptop and hosts"), ("mend", "the reverse of cut")):
        act = acts.add_parser(name, help=about)
        act.add_argument("hosts", nargs="*", help="default: all")
        act.set_defaults(act=lambda asked, name=name: getattr(Bed.attach(asked.dir), name)(*asked.hosts))
    key = acts.add_parser("key", help="give a host another SSH key, or trust the present ones")
    key.add_argument("what", choices=("change", "trust"))
    key.add_argument("host", nargs="?", default="router")
    key.set_defaults(act=_key)
    return parser


def _up(asked: argparse.Namespace) -> None:
    wrong = [each for each in asked.set if "=" not in each]
    if wrong:
        raise BedError(f"--set wants NAME=VALUE, not {wrong[0]!r}")
    bed = Bed.start(
        build=asked.build,
        engine=asked.engine,
        prefill=asked.prefill,
        decode=asked.decode,
        options=dict(each.split("=", 1) for each in asked.set),
        folder=asked.dir,
        time_limit_s=asked.hours * 3600,
        alone=True,
    )
    prefix = _prefix(asked.dir)
    print(f"A cluster is up for {asked.hours:g} h: {', '.join(bed.hosts)}, and a laptop that reaches them over SSH.")
    print(f"target  {bed.target()}   (also target-direct.yaml, target-remote.yaml)")
    print(f"try     {prefix} exec {LAPTOP} -- ssh -F {bed.folder.ssh_config} decode-0")
    print(f"run     {prefix} exec {LAPTOP} -- pdchaos run abort-cascade -t {bed.target()}")
    print(f"end     {prefix} down")


def _prefix(folder: Path) -> str:
    return f"{sys.executable} -m testbed" + (f" --dir {folder}" if folder != default_folder() else "")


def _down(asked: argparse.Namespace) -> None:
    Bed.attach(asked.dir).stop()


def _status(asked: argparse.Namespace) -> None:
    bed = Bed.attach(asked.dir)
    left = bed.leftovers()
    for host in (LAPTOP, *bed.hosts):
        node = "" if host == LAPTOP else f"node {bed.pid(host) or 'dead'}"
        print(f"{host:<12}{bed.address(host):<14}{node}")
        for kind, found in left[host].items() if host in left else ():
            print("".join(f"    left: {kind}: {each}\n" for each in found), end="")


def _exec(asked: argparse.Namespace) -> None:
    words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if not words:
        raise BedError("exec wants a command after the host")
    command = Bed.attach(asked.dir).command(asked.host, words)
    if asked.host == LAPTOP:  # whose programs are those of this environment
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606, signals and the terminal are the command's


def _key(asked: argparse.Namespace) -> None:
    bed = Bed.attach(asked.dir)
    if asked.what == "change":
        bed.change_host_key(asked.host)
    else:
        bed.trust_host_keys()


if __name__ == "__main__":
    sys.exit(main())
