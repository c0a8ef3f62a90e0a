"""Where the package comes from, which only who builds it for an index can say: the release workflow does.

With ``UPCALL_PROJECT_URL`` the metadata have the project's addresses, and the README's links lead there: on an index a
relative link leads nowhere. Without it, as in a checkout, the README is as it stands.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

URL = "UPCALL_PROJECT_URL"
"""The address of the repository on its forge."""

_RELATIVE = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")
_IMAGE = re.compile(r"(!\[[^\]]*\]\()(?!https?:)([^)\s]+)(?=\))")


class ProjectUrls(MetadataHookInterface):
    """Sets the README and the addresses."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        url, tag = os.environ.get(URL, "").rstrip("/"), f"v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": lead_to(readme, url, tag) if url else readme}
        if url:
            metadata["urls"] = {
                "Source": url,
                "Documentation": f"{url}/tree/{tag}/docs",
                "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }


def lead_to(text: str, url: str, tag: str) -> str:
    """Return a page whose relative links lead to the files of a version, and whose images are such files."""
    shown = _IMAGE.sub(lambda found: f"{found[1]}{url}/raw/{tag}/{found[2]}", text)
    return _RELATIVE.sub(lambda found: f"{url}/blob/{tag}/{found[1]}", shown)
