# What a host's Python reads first, before it has anything of ours: it takes the archive from stdin into memory and
# becomes it. Sent as text, so it stands alone, and written so that Python 2.7 can say that it is too old.
import hashlib
import json
import os
import sys


def boot(size, sha256, word, mark, run):
    # type: (int, str, str, str, str) -> None
    """Take `size` bytes of archive whose digest is `sha256`, and become its `word`.

    What goes wrong is one JSON line on stdout that carries `mark`. The first line of the archive's own carries it, too.
    """
    kind, text = "old-python", "%s is Python %s" % (sys.executable or "python", sys.version.split()[0])
    if sys.version_info >= (3, 9):
        try:
            kind, text = "", ""
            code = _keep(_take(size, sha256))
        except ValueError as error:
            kind, text = error.args
    if kind:
        os.write(1, ("\n" + json.dumps({"mark": mark, "kind": kind, "err": text}) + "\n").encode())
        sys.exit(3)
    os.environ["PDCHAOS_RUN"] = run
    try:
        os.setsid()
    except OSError:
        pass  # we lead one already
    os.execv(sys.executable, [sys.executable, "-I", code, word, mark])


def _take(size, sha256):
    # type: (int, str) -> bytes
    parts, missing = [], size
    while missing:
        part = os.read(0, min(missing, 1 << 16))
        if not part:
            raise ValueError("cut", "%d of %d bytes did not arrive" % (missing, size))
        parts.append(part)
        missing -= len(part)
    archive = b"".join(parts)
    if hashlib.sha256(archive).hexdigest() != sha256:
        raise ValueError("garbled", "what arrived is not what was sent")
    return archive


def _keep(archive):
    # type: (bytes) -> str
    fd = -1
    try:
        fd = os.memfd_create("pdchaos", 0)
    except (AttributeError, OSError):  # a Python built for old systems, or a kernel that does not have it
        for folder in ("/dev/shm", "/run", "/tmp"):  # a file without a name
            try:
                fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
                break
            except OSError:
                continue
    if fd < 0:
        raise ValueError("no-memory", "there is nowhere to keep a program without leaving a file behind")
    view = memoryview(archive)
    while view:
        view = view[os.write(fd, view) :]
    os.set_inheritable(fd, True)
    return "/proc/self/fd/%d" % fd
