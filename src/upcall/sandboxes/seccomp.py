"""The system calls that a command in the sandbox cannot make, as a filter that bubblewrap sets.

Namespaces keep a command from files and the network. What they do not cover is refused here: kinds of sockets that no
network namespace contains (AF_VSOCK reaches the host of a virtual machine), the keys of the user's session, work that
bypasses limits and filters (io_uring), looking into other processes, and large old parts of the kernel that no build
and no test needs. libseccomp makes the filter and knows the numbers of each machine; a program for another kind of
processor (32 bits) is killed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import socket
from functools import cache

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL, _GREATER, _MASKED = 4, 6, 7
_UNKNOWN = -1

FORBIDDEN = (
    *("add_key", "keyctl", "request_key"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("userfaultfd", "bpf", "perf_event_open", "fanotify_init", "lookup_dcookie"),
    *("mount", "umount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "move_mount", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at", "quotactl"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module", "reboot"),
    *("acct", "swapon", "swapoff", "syslog", "iopl", "ioperm", "modify_ldt", "vm86", "vm86old", "uselib", "nfsservctl"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "vhangup", "sethostname", "setdomainname"),
)

_FAMILIES = frozenset({socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_NETLINK", 16)})
"""The kinds of sockets available in the sandbox, all inside its network namespace."""

_MULTIPLYING = ("fork", "vfork", "memfd_create", "memfd_secret", "shmget", "msgget")
"""Calls that take memory beyond the limits of a process."""

_MAX_FAMILY = 64
_CLONE_THREAD, _CLONE_NEW_USER = 0x00010000, 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Requests that put text into the terminal that upcall runs in."""


class _ArgumentComparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_uint),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


@cache
def load_library() -> ctypes.CDLL | None:
    """Load libseccomp; return None if it cannot be found."""
    for name in ("libseccomp.so.2", ctypes.util.find_library("seccomp")):
        try:
            library = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if library is not None:
            library.seccomp_init.restype = ctypes.c_void_p
            library.seccomp_init.argtypes = [ctypes.c_uint32]
            library.seccomp_rule_add_array.argtypes = [
                *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_ArgumentComparison))
            ]
            library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
            library.seccomp_release.argtypes = [ctypes.c_void_p]
            return library
    return None


@cache
def compile_filter(*, single: bool = False) -> bytes:
    """Compile the filter, once per process.

    `single` is for a single-process program: it can only start threads, so that its own limits apply to all.

    Raises:
        OSError: libseccomp cannot be found, or refuses a rule.
    """
    library = load_library()
    if library is None:
        raise OSError(errno.ENOENT, "libseccomp cannot be found")
    rules = library.seccomp_init(_ALLOW)
    try:
        for name in (*FORBIDDEN, *(_MULTIPLYING if single else ())):
            _forbid(library, rules, name, errno.EPERM)
        # glibc falls back to clone, whose flags a filter can read.
        _forbid(library, rules, "clone3", errno.ENOSYS)
        _forbid(library, rules, "clone", errno.EPERM, _ArgumentComparison(0, _MASKED, _CLONE_NEW_USER, _CLONE_NEW_USER))
        if single:
            _forbid(library, rules, "clone", errno.EPERM, _ArgumentComparison(0, _MASKED, _CLONE_THREAD, 0))
        for family in range(_MAX_FAMILY):
            if family not in _FAMILIES:
                _forbid(library, rules, "socket", errno.EAFNOSUPPORT, _ArgumentComparison(0, _EQUAL, family, 0))
        _forbid(library, rules, "socket", errno.EAFNOSUPPORT, _ArgumentComparison(0, _GREATER, _MAX_FAMILY - 1, 0))
        for request in (_TIOCSTI, _TIOCLINUX):
            _forbid(library, rules, "ioctl", errno.EPERM, _ArgumentComparison(1, _MASKED, 0xFFFFFFFF, request))
        return _export(library, rules)
    finally:
        library.seccomp_release(rules)


def _forbid(library: ctypes.CDLL, rules: int, name: str, error: int, *compared: _ArgumentComparison) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN:  # Unknown to an older library, hence to every program.
        return
    array = (_ArgumentComparison * max(len(compared), 1))(*compared)
    done = library.seccomp_rule_add_array(rules, _ERRNO | error, number, len(compared), array)
    if done not in (0, -errno.EEXIST):
        raise OSError(-done, f"libseccomp refuses a rule for {name}")


def _export(library: ctypes.CDLL, rules: int) -> bytes:
    descriptor = os.memfd_create("filter")
    try:
        if (done := library.seccomp_export_bpf(rules, descriptor)) != 0:
            raise OSError(-done, "libseccomp cannot write its filter")
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
