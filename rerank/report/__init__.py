"""Report pages: one HTML file without anything outside it. Import from the modules.

- ``page``: ``Report`` (what a page shows) and ``write_report``
- ``queries``: what the page's script needs to show rankings side by side
- ``charts``: precision over recall, and bars with intervals
- ``evaluation``: the report of ``rerank evaluate``
"""

from __future__ import annotations
