"""Files sent with a task: documents, stored in a folder of the run, and images, which go into the task."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from starlette.datastructures import FormData, UploadFile

from upcall.autogen.api import Image as AutoGenImage
from upcall.autogen.api import MultiModalMessage
from upcall.autogen.messages import USER
from upcall.errors import CallerError
from upcall.execution.start_options import TaskInput
from upcall.lazy_pattern import LazyPattern

_log = logging.getLogger(__name__)

MAX_FILES = 20
MAX_NAME_BYTES = 200
MAX_IMAGE_PIXELS, MAX_PIXELS = 40_000_000, 120_000_000
DOCUMENTS, IMAGES = "documents", "images"

_UNSAFE = LazyPattern(r"[^\w .()+-]|^[. ]+", re.UNICODE)


@dataclass(frozen=True)
class Sent:
    """An uploaded file: its name according to the sender, and its content."""

    name: str
    content: bytes


async def read_files(form: FormData, field: str) -> list[Sent]:
    """Read the files in a form field; an empty file means none."""
    files = [each for each in form.getlist(field) if isinstance(each, UploadFile) and each.filename]
    return [Sent(each.filename or "", await each.read()) for each in files]


def make_task(text: str, images: Sequence[Sent]) -> TaskInput:
    """Make a task from a text and images.

    Raises:
        CallerError: one of them is not an image, or they are too many or too large.
    """
    if not images:
        return text
    _refuse_many(images)
    read: list[AutoGenImage] = []
    for sent in images:
        left = MAX_PIXELS - sum(each.image.width * each.image.height for each in read)
        read.append(_read_image(sent, min(left, MAX_IMAGE_PIXELS)))
    return MultiModalMessage(source=USER, content=[text, *read])


def _refuse_many(files: Sequence[Sent]) -> None:
    if len(files) > MAX_FILES:
        raise CallerError(f"{len(files)} files are too many: send {MAX_FILES} at most.")


def _read_image(sent: Sent, pixels: int) -> AutoGenImage:
    try:
        opened = Image.open(io.BytesIO(sent.content))
        if opened.width * opened.height > pixels:  # A few kilobytes can be gigabytes of pixels.
            raise CallerError(
                f"The image {sent.name!r} is {opened.width} x {opened.height} pixels: send smaller ones, each of "
                f"{MAX_IMAGE_PIXELS:,} at most and all of {MAX_PIXELS:,}."
            )
        return AutoGenImage(opened.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CallerError(f"{sent.name!r} is not an image that can be read. Send PNG, JPEG, GIF or WebP.") from error


def store_documents(folder: Path, documents: Sequence[Sent]) -> list[Path]:
    """Store documents in their own folder, each under a name that cannot leave it.

    Raises:
        CallerError: there are too many, or the folder cannot be written.
    """
    _refuse_many(documents)
    taken: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for sent in documents:
            path = folder / _choose_name(sent.name, {each.name for each in taken})
            path.write_bytes(sent.content)
            taken.append(path)
    except OSError as error:
        _log.warning("The documents of a run cannot be stored: %s", error)
        raise CallerError(f"The documents cannot be stored: {error.strerror}.") from error
    return taken


def _choose_name(name: str, taken: set[str]) -> str:
    """Choose a name that is not a path, not hidden, and not taken."""
    last = re.split(r"[/\\]", name)[-1]
    # Cut at the front: the ending says how a document is read.
    safe = _UNSAFE.sub("_", last)[-120:].encode(errors="replace")[-MAX_NAME_BYTES:].decode(errors="ignore")
    safe = safe.strip(". ") or "document"
    stem, dot, ending = safe.rpartition(".")
    number, chosen = 1, safe
    while chosen in taken:
        number += 1
        chosen = f"{stem}-{number}.{ending}" if dot else f"{safe}-{number}"
    return chosen
