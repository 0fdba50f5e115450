"""A connection that swallows whatever arrives: no data, no FIN and no RST of the peer reaches TCP, so none is answered.

A socket filter that accepts nothing sits before TCP's own processing (Linux, tcp_v4_rcv), needs no privilege, hits this
very connection and ends with it. Each segment it drops is counted by the kernel.
"""

from __future__ import annotations

import ctypes
import socket
import struct

_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_MEMINFO = 26, 27, 55  # asm-generic/socket.h
_ACCEPT_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K, 0
_MEMINFO = struct.Struct("9I")
_DROPS = 8  # SK_MEMINFO_DROPS in linux/sock_diag.h


def attach(sock: socket.socket) -> None:
    """From now on nothing that arrives is seen; OSError where the system cannot do that."""
    code = ctypes.create_string_buffer(_ACCEPT_NOTHING, len(_ACCEPT_NOTHING))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))


def detach(sock: socket.socket) -> None:
    """Let everything through again; OSError when there was no filter."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def drops(sock: socket.socket) -> int:
    """Segments dropped at this socket so far; 0 where the system does not tell."""
    try:
        told = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    except OSError:
        return 0
    return int(_MEMINFO.unpack(told)[_DROPS]) if len(told) == _MEMINFO.size else 0


def why_impossible() -> str:
    """Why no connection of this machine can be made a black hole; empty when it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            attach(sock)
            detach(sock)
        except OSError as error:
            return error.strerror or str(error)
    return ""
