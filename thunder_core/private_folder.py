"""Folders and files that no other user can change, checked when they are opened.

A path is opened folder by folder, each relative to the descriptor of the one before it and without following symbolic
links, and owner and mode are those of the opened descriptor. So nothing can be exchanged between a check and its use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SUPPORTED: Final = hasattr(os, "getuid") and os.open in os.supports_dir_fd
"""Whether the operating system has owners of files and opens files relative to a folder."""

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK if SUPPORTED else 0  # a FIFO must not block
_SEARCH: Final = getattr(os, "O_PATH", 0)  # folders above may be such that users can pass, and not list them
_MOST_LINKS: Final = 40
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFile(Exception):
    """A folder or file that another user may have written, or that is not what it must be."""


@contextlib.contextmanager
def opened_folder(path: Path, *, create: bool = False) -> Iterator[int]:
    """A context with the descriptor of a folder that only this user, or the administrator, can change.

    All folders above it are checked too. Others may write to one of these only if its sticky bit keeps them from
    exchanging what it holds, as in ``/tmp``. Symbolic links above it are followed if this user or the administrator
    created them.

    Args:
        path: an absolute path. The current directory is refused.
        create: whether missing folders are created, accessible to this user alone.

    Raises:
        UnsafeFile: another user can change the folder, or a folder above it.
        OSError: a folder does not exist, or cannot be opened or created.
    """
    folder = _open_path(path, create)
    try:
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def opened_subfolder(folder: int, name: str, shown: Path, *, create: bool = False) -> Iterator[int]:
    """A context with the descriptor of a folder inside of an opened one. Raises as `opened_folder`.

    Args:
        folder: the descriptor of the opened folder.
        name: the name in it.
        shown: the path of the subfolder, for messages.
        create: as in `opened_folder`.
    """
    subfolder = _open_in(folder, name, create)
    try:
        _check(os.fstat(subfolder), shown)
        yield subfolder
    finally:
        os.close(subfolder)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A context with a new private folder, which is deleted at its end.

    Raises:
        UnsafeFile: other users can change the folder for temporary files that the environment names.
    """
    with tempfile.TemporaryDirectory(prefix="thunder-") as name:
        path = Path(name)
        with opened_folder(path):
            pass
        yield path


def read_file(folder: int, name: str, shown: Path, most: int) -> bytes:
    """The content of a file in an opened folder.

    Args:
        folder, name, shown: as in `opened_subfolder`.
        most: the largest accepted number of bytes.

    Raises:
        UnsafeFile: another user can change the file, or it is not a regular file, or larger.
        OSError: it does not exist, or cannot be read.
    """
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):  # for the message; open refuses it
        raise UnsafeFile(f"{shown} is a symbolic link")
    descriptor = os.open(name, _FLAGS, dir_fd=folder)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise UnsafeFile(f"{shown} is not a regular file")
        _check(state, shown)
        if state.st_size > most:
            raise UnsafeFile(f"{shown} has more than {most} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def write_file(folder: int, name: str, content: bytes) -> None:
    """Write a file in an opened folder at once, so that no process sees a part of it. Raises OSError."""
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def remove(folder: int, name: str) -> bool:
    """Remove what has this name in an opened folder, whatever it is. Returns whether it is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        shutil.rmtree(name, dir_fd=folder, ignore_errors=True)  # it follows no symbolic links
        return not _exists(folder, name)
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _open_path(path: Path, create: bool) -> int:
    if not SUPPORTED:
        raise UnsafeFile(f"this operating system does not tell who can write to {path}")
    if not path.is_absolute():
        raise UnsafeFile(f"{str(path)!r} is not an absolute path")
    folder = os.open("/", _FLAGS | _SEARCH | os.O_DIRECTORY)
    try:
        administrator = os.fstat(folder).st_uid  # in a container, another number than 0
        parts, links, shown = [*reversed(path.parts[1:])], 0, Path("/")
        while parts:
            _check(os.fstat(folder), shown, administrator, above=True)
            part = parts.pop()
            target = _link(folder, part, shown / part, administrator)
            if target is None:
                folder, previous = _open_in(folder, part, create, _SEARCH), folder
                os.close(previous)
                shown /= part
                continue
            links += 1
            if links > _MOST_LINKS:
                raise UnsafeFile(f"{path} has too many symbolic links")
            parts += reversed(target.parts)
            if target.is_absolute():
                parts.pop()
                folder, previous = os.open("/", _FLAGS | _SEARCH | os.O_DIRECTORY), folder
                os.close(previous)
                shown = Path("/")
        state = os.fstat(folder)
        _check(state, path)
        if _is_current(state):
            raise UnsafeFile(f"{path} is the current directory")
        return os.open(".", _FLAGS | os.O_DIRECTORY, dir_fd=folder)
    finally:
        os.close(folder)


def _is_current(state: os.stat_result) -> bool:
    try:
        return os.path.samestat(state, os.stat("."))
    except OSError:  # it was deleted
        return False


def _link(folder: int, name: str, shown: Path, administrator: int) -> Path | None:
    """The target of a symbolic link in an opened folder; None if it is not a link, or does not exist."""
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(state.st_mode):
        return None
    if state.st_uid not in (os.geteuid(), 0, administrator):
        raise UnsafeFile(f"{shown} belongs to another user")
    return Path(os.readlink(name, dir_fd=folder))


def _open_in(folder: int, name: str, create: bool, flags: int = 0) -> int:
    flags |= _FLAGS | os.O_DIRECTORY
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        if error.errno == errno.ELOOP:  # as some systems say for a symbolic link
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        raise
    with contextlib.suppress(FileExistsError):  # another process was faster
        os.mkdir(name, 0o700, dir_fd=folder)
        if stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o700 != 0o700:
            os.chmod(name, 0o700, dir_fd=folder)  # the umask took the owner's rights
    return os.open(name, flags, dir_fd=folder)


def _check(state: os.stat_result, shown: Path, administrator: int = 0, *, above: bool = False) -> None:
    """Raise UnsafeFile if a file or folder may have been changed by others.

    Args:
        state: of the opened descriptor.
        shown: the path, for messages.
        administrator: the owner of the root folder.
        above: whether this is a folder above the one in question.
    """
    trusted = (os.geteuid(), 0, administrator) if above else (os.geteuid(), 0)
    if state.st_uid not in trusted:
        raise UnsafeFile(f"{shown} belongs to another user")
    if not state.st_mode & _OTHERS_WRITE or (above and state.st_mode & stat.S_ISVTX):
        return
    if above and not state.st_mode & stat.S_IWOTH and _is_private_group(state.st_gid):
        return
    raise UnsafeFile(f"others can write to {shown}")


def _is_private_group(group: int) -> bool:
    """Whether a group has this user alone, as some systems create one for each user, whose folders it may write."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}
