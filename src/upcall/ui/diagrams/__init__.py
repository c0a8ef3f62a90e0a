"""Pictures: a run as a timeline and as a tree, a team as a diagram. A self-contained SVG, or Mermaid text.

Each is one string. The SVGs are 800 pixels wide, and a notebook shows them (`Picture`). Words of models and users are
escaped and truncated to fit.
"""

from __future__ import annotations

from upcall.ui.diagrams.diagram import Picture
from upcall.ui.diagrams.team import team_mermaid, team_svg
from upcall.ui.diagrams.team_tree import team_lines
from upcall.ui.diagrams.timeline import timeline
from upcall.ui.diagrams.tree import tree, tree_lines

__all__ = ["Picture", "team_lines", "team_mermaid", "team_svg", "timeline", "tree", "tree_lines"]
