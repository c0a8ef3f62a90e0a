"""Files as people have them: made by the libraries that make them, and damaged by hand."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import docx
import pypdf
from reportlab.pdfgen.canvas import Canvas


def pdf(path: Path, pages: Sequence[str], *, title: str = "", password: str = "") -> Path:
    """Return a PDF of real text, a text a page."""
    canvas = Canvas(str(path))
    canvas.setTitle(title)
    for page in pages:
        for number, line in enumerate(page.splitlines()):
            canvas.drawString(72, 750 - 14 * number, line)
        canvas.showPage()
    canvas.save()
    if password:
        writer = pypdf.PdfWriter(clone_from=path)
        writer.encrypt(password, algorithm="AES-256")
        writer.write(path)
    return path


def word(path: Path, paragraphs: Sequence[str], rows: Sequence[Sequence[str]] = (), *, title: str = "") -> Path:
    """Return a DOCX with paragraphs and, behind them, a table."""
    document = docx.Document()
    document.core_properties.title = title
    for each in paragraphs:
        document.add_paragraph(each)
    if rows:
        table = document.add_table(len(rows), len(rows[0]))
        for row, cells in zip(table.rows, rows, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    document.save(str(path))
    return path


def zip_bomb(path: Path) -> Path:
    """Return a small DOCX that unpacks to 310 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("[Content_Types].xml", "<Types/>")
        with packed.open("word/document.xml", "w") as part:
            for _ in range(310):
                part.write(b" " * 1_000_000)
    return path
