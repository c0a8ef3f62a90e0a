"""Take the picture of a run's page that the README and the documentation show: `python docs/page_picture.py FILE.png`.

It is a real service with a run of the demo that waits for an answer. Take it anew when the page changes: it needs the
extra `test` and Chromium, so the picture is kept in docs/images, and not made at each build.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1280, 900
COLOURS = 64
UPCALL = str(Path(sys.executable).with_name("upcall"))


def take_picture(target: Path) -> None:
    """Start the demo's run and the service in an empty folder, and take the picture."""
    with TemporaryDirectory() as folder:
        subprocess.run([UPCALL, "run", "Build me a user authentication system", "--detach"], cwd=folder, check=True)
        command = [UPCALL, "serve", "--port", "0"]
        service = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            login = _read_link(service)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
                page.goto(login)
                page.get_by_role("link", name="Build me a user authentication system").first.click()
                page.locator("#questions").wait_for()
                shown = page.screenshot(full_page=True)
                browser.close()
        finally:
            service.terminate()
            service.wait()
    Image.open(io.BytesIO(shown)).quantize(COLOURS).save(target, optimize=True)


def _read_link(service: subprocess.Popen[str]) -> str:
    assert service.stdout is not None
    for line in service.stdout:
        if found := re.search(r"http://\S+token=\S+", line):
            return found[0]
    raise SystemExit("The service gave no link to log in with.")


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]))
